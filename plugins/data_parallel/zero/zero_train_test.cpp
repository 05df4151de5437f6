// data_parallel/zero in whole runs with ranks as threads: every stage has the figures of whole copies, to the last bit.
#include <gtest/gtest.h>

#include "support/plugin_under_test.h"
#include "support/temp_folder.h"
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

// Blocks with matrices of different sizes, a vocabulary that no number of ranks divides, values that are really
// gathered.
RunResult train(const TempFolder& folder, const std::string& name, const std::string& section, int ranks,
                int accumulation = 1) {
  Value value = parse_json(R"({
    "train_steps": 4, "seed": 7, "train_micro_batch_size_per_gpu": 1, "monitors": "jsonl",
    "model": {"type": "gpt", "params": {"num_layers": 2, "hidden_size": 48, "num_attention_heads": 4, "vocab_size": 101,
              "max_position_embeddings": 16}},
    "dataset": {"type": "synthetic", "params": {"seq_length": 16}}, "gradient_clipping": 0.5,
    "communicator": {"type": "local", "params": {"share": false}},
    "optimizer": {"type": "AdamW", "params": {"lr": 3e-3, "weight_decay": 0.1}}})",
                           "test");
  const Value further = parse_json(section, "test");
  for (const Value::Member& m : further.members()) value.set(m.key, m.value);
  value.set("gradient_accumulation_steps", accumulation);
  value.set("output_dir", folder.path(name));
  return run_threads(value, ranks);
}

// Losses and norms of all steps.
std::string figures(const RunResult& run) {
  EXPECT_EQ(run.metrics.size(), 4u);
  std::string text;
  for (const Value& step : run.metrics)
    text += concat(step.find("loss")->to_json(), " ", step.find("grad_norm")->to_json(), "\n");
  return text;
}

std::string stage(int64_t stage, const std::string& more = "") {
  return concat(R"({"zero_optimization": {"stage": )", stage, more, "}}");
}

constexpr const char* kSmall = R"(, "reduce_bucket_size": 3000, "sub_group_size": 2048)";
constexpr const char* kCut = R"(, "stage3_param_persistence_threshold": 100, "stage3_prefetch_bucket_size": 5000)";

TEST(ZeroRun, every_stage_has_the_losses_and_norms_of_whole_copies) {
  const TempFolder folder;
  for (const int ranks : {1, 2, 4}) {
    const std::string whole = figures(train(folder, concat("whole", ranks), "{}", ranks));
    for (const int s : {1, 2, 3}) {
      const std::string more = s == 3 ? std::string(kSmall) + kCut : kSmall;
      EXPECT_EQ(figures(train(folder, concat("small", s, "_", ranks), stage(s, more), ranks)), whole)
          << s << " on " << ranks;
    }
    EXPECT_EQ(figures(train(folder, concat("usual", ranks), stage(3), ranks)), whole) << ranks;
  }
}

TEST(ZeroRun, with_accumulation_one_reduce_every_gives_one_curve) {
  const TempFolder folder;
  for (const int every : {0, 1, 2}) {
    const std::string key = concat(R"("reduce_every": )", every);
    const std::string whole = figures(train(folder, concat("whole", every), "{" + key + "}", 2, 3));
    for (const int s : {1, 2, 3})
      EXPECT_EQ(figures(train(folder, concat("zero", s, "_", every),
                              stage(s, std::string(s == 3 ? kCut : kSmall) + ", " + key), 2, 3)),
                whole)
          << "stage " << s << ", reduce_every " << every;
  }
}

TEST(ZeroRun, groups_and_second_copies_change_no_bit) {
  const TempFolder folder;
  const std::string whole = figures(train(folder, "whole", "{}", 4));
  for (const int s : {1, 2, 3}) {
    const std::string more = s == 3 ? kCut : "";
    EXPECT_EQ(figures(train(folder, concat("groups", s), stage(s, more + R"(, "group_size": 2)"), 4)), whole) << s;
    EXPECT_EQ(figures(train(folder, concat("alone", s), stage(s, more + R"(, "group_size": 1)"), 4)), whole) << s;
  }
  EXPECT_EQ(figures(train(folder, "hpz", stage(3, std::string(kCut) + R"(, "zero_hpz_partition_size": 2)"), 4)), whole);
  EXPECT_EQ(figures(train(folder, "mics", stage(3, std::string(kCut) + R"(, "mics_shard_size": 2)"), 4)), whole);
}

TEST(ZeroRun, waiting_at_once_and_keeping_values_change_no_bit) {
  const TempFolder folder;
  const std::string whole = figures(train(folder, "whole", "{}", 2));
  int n = 0;
  for (const char* more :
       {R"(, "overlap_comm": false)", R"(, "stage3_max_reuse_distance": 1e9)", R"(, "stage3_max_live_parameters": 0)",
        R"(, "stage3_allgather_sequential": true)", R"(, "stage3_max_reuse_distance": 0)"}) {
    const std::string cut = R"(, "stage3_param_persistence_threshold": 0)";
    EXPECT_EQ(figures(train(folder, concat("run", ++n), stage(3, cut + more), 2)), whole) << more;
  }
}

TEST(ZeroRun, values_that_exist_once_for_all_ranks_change_no_bit) {
  const TempFolder folder;
  const std::string whole = figures(train(folder, "whole", "{}", 2));
  for (const int s : {1, 3}) {
    const std::string section =
        concat(R"({"communicator": "local", "zero_optimization": {"stage": )", s, s == 3 ? kCut : kSmall, "}}");
    EXPECT_EQ(figures(train(folder, concat("once", s), section, 2)), whole) << s;
  }
}

TEST(ZeroRun, true_is_stage_1_and_data_parallel_may_name_it) {
  const TempFolder folder;
  const std::string whole = figures(train(folder, "whole", "{}", 2));
  const RunResult bare = train(folder, "bare", R"({"zero_optimization": true})", 2);
  EXPECT_EQ(figures(bare), whole);
  EXPECT_EQ(figures(train(folder, "typed", R"({"data_parallel": {"type": "zero", "params": {"stage": 2}}})", 2)),
            whole);
  EXPECT_EQ(figures(train(folder, "typed0", R"({"data_parallel": {"type": "zero", "params": {"stage": 0}}})", 2)),
            whole);
  EXPECT_EQ(figures(train(folder, "off", R"({"zero_optimization": {"stage": 0, "zenflow": {}}})", 2)), whole);
}

TEST(ZeroRun, groups_that_do_not_divide_the_ranks_stop_it_at_the_start) {
  const TempFolder folder;
  EXPECT_NE(error_of([&] {
              train(folder, "run", stage(1, R"(, "group_size": 3)"), 2);
            }).find("group_size = 3 does not divide the 2 ranks"),
            std::string::npos);
}

}  // namespace
}  // namespace drivetrain::test
