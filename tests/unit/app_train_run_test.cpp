// What whole runs say and leave, with ranks as threads: planned and measured bytes against the formulas of the
// strategies, notes, final weights.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include <drivetrain/testkit/kit/temp_folder.h>
#include "support/plugin_under_test.h"
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

// 2.6 million parameters, so that the gaps between them do not show.
Value config(const TempFolder& folder, const std::string& name, const std::string& more) {
  Value value = parse_json(R"({
    "train_steps": 2, "seed": 7, "train_micro_batch_size_per_gpu": 1, "monitors": "jsonl",
    "model": {"type": "gpt", "params": {"num_layers": 2, "hidden_size": 256, "num_attention_heads": 4, "vocab_size": 4096,
              "max_position_embeddings": 16}},
    "dataset": {"type": "synthetic", "params": {"seq_length": 8}},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}})",
                           "test");
  const Value further = parse_json(more, "test");
  for (const Value::Member& m : further.members()) value.set(m.key, m.value);
  value.set("output_dir", folder.path(name));
  return value;
}

Value memory_of(const RunResult& run) { return read_json_file(run.folder + "/memory.json"); }

double figure(const Value& table, const char* name) { return table.find(name)->as_double(); }

// Bytes per parameter, by class.
struct Formula {
  double parameters, gradients, optimizer;
  double states() const { return parameters + gradients + optimizer; }
};

// What is larger than the formula by more than 3 %, or smaller, is wrong; parameters that exist once for all ranks may
// be smaller (`once`).
void expect_formula(const Value& table, double count, const Formula& want, bool planned, bool once) {
  const auto near = [&](const char* name, double bytes) {
    EXPECT_NEAR(figure(table, name) / count, bytes, 0.03 * bytes) << (planned ? "planned " : "measured ") << name;
  };
  near("gradients", want.gradients);
  near("optimizer", want.optimizer);
  if (!once || figure(table, "parameters") > want.parameters * count)
    near("parameters", want.parameters), near("states", want.states());
}

void expect_report(const RunResult& run, size_t ranks, const Formula& want, bool share = true) {
  const Value memory = memory_of(run);
  const double count = figure(memory, "model_parameters");
  EXPECT_GT(count, 2e6);
  expect_formula(*memory.find("planned"), count, want, true, share);
  ASSERT_EQ(memory.find("ranks")->items().size(), ranks);
  for (const Value& rank : memory.find("ranks")->items()) {
    expect_formula(rank, count, want, false, share);
    EXPECT_GT(figure(rank, "peak_memory_bytes"), figure(rank, "states"));
    EXPECT_EQ(figure(rank, "states_on_host"), 0);  // said of runs on a device
    EXPECT_NEAR(figure(*rank.find("planned"), "states"), figure(rank, "states"), 0.01 * figure(rank, "states"));
  }
}

const char* const kBf16 = R"({"bf16": {"enabled": true}})";

TEST(MemoryReport, whole_copies_hold_16_bytes_per_parameter_and_18_with_bf16) {
  const TempFolder folder;
  for (const int ranks : {1, 2}) {
    const std::string n = std::to_string(ranks);
    expect_report(run_threads(config(folder, "float32_" + n, "{}"), ranks), static_cast<size_t>(ranks), {4, 4, 8});
    expect_report(run_threads(config(folder, "bf16_" + n, kBf16), ranks), static_cast<size_t>(ranks), {2, 4, 12});
  }
}

// Sections of a config, and what it holds on n ranks with float32 and with bf16 parameters.
struct Sharing {
  const char* sections;
  Formula float32, bf16;
};
std::vector<Sharing> ways_to_share(double n) {
  const Formula third = {4 / n, 4 / n, 8 / n}, third_bf16 = {2 / n, 4 / n, 12 / n};
  return {{R"("zero_optimization": {"stage": 1})", {4, 4, 8 / n}, {2, 4, 12 / n}},
          {R"("zero_optimization": {"stage": 2})", {4, 4 / n, 8 / n}, {2, 4 / n, 12 / n}},
          {R"("zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0})", third, third_bf16},
          {R"("data_parallel": "fsdp")", third, third_bf16}};
}

TEST(MemoryReport, shared_state_holds_what_the_formulas_of_its_stage_say) {
  const TempFolder folder;
  int number = 0;
  for (const int ranks : {2, 4})
    for (const Sharing& way : ways_to_share(ranks)) {
      SCOPED_TRACE(concat(way.sections, " on ", ranks, " ranks"));
      const auto run = [&](const std::string& sections) {
        return run_threads(config(folder, std::to_string(++number), "{" + sections + "}"), ranks);
      };
      expect_report(run(way.sections), static_cast<size_t>(ranks), way.float32);
      expect_report(run(std::string(way.sections) + R"(, "bf16": {"enabled": true})"), static_cast<size_t>(ranks),
                    way.bf16);
    }
}

// Where ranks share no memory, nothing but the freeing of whole values brings a rank down to its part.
TEST(MemoryReport, values_that_are_shared_out_are_a_part_on_every_rank_that_has_its_own_memory) {
  const TempFolder folder;
  const std::string own = R"(, "communicator": {"type": "local", "params": {"share": false}})";
  int number = 0;
  for (const int ranks : {2, 4})
    for (const Sharing& way : ways_to_share(ranks)) {
      SCOPED_TRACE(concat(way.sections, " on ", ranks, " ranks"));
      const auto check = [&](const std::string& more, const Formula& want) {
        const std::string name = std::to_string(++number);
        const Value value = config(folder, name, concat("{", way.sections, own, more, "}"));
        expect_report(run_threads(value, ranks), static_cast<size_t>(ranks), want, false);
      };
      check("", way.float32);
      check(R"(, "bf16": {"enabled": true})", way.bf16);
    }
}

TEST(MemoryReport, a_group_of_2_of_4_ranks_halves_the_optimizer) {
  const TempFolder folder;
  const std::string half = R"({"zero_optimization": {"stage": 1, "group_size": 2}})";
  expect_report(run_threads(config(folder, "half", half), 4), 4, {4, 4, 4});
}

TEST(MemoryReport, an_optimizer_with_less_state_holds_less) {
  const TempFolder folder;
  const std::string sgd = R"({"optimizer": {"type": "SGD", "params": {"lr": 1e-3}}})";
  expect_report(run_threads(config(folder, "sgd", sgd), 1), 1, {4, 4, 0});
}

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(MemoryReport, the_log_has_the_plan_once_and_the_measure_with_every_rank) {
  const TempFolder folder;
  const RunResult run = run_threads(config(folder, "run", "{}"), 2);
  const std::string log = text_of(run.folder + "/log.txt");
  EXPECT_EQ(count_of(log, "memory per rank  "), 2u) << log;  // planned; planned and measured
  EXPECT_EQ(count_of(log, "(largest of 2 ranks)"), 1u);
  EXPECT_EQ(count_of(log, "  model states  "), 2u);
  for (const char* line : {"  parameters  ", "  gradients  ", "  optimizer  "})
    EXPECT_GE(count_of(log, line), 2u) << line;
  for (const char* line : {"activations and buffers  ", "peak of the process  ", "memory of rank 0, MB: parameters 10.",
                           "memory of rank 1, MB: "})
    EXPECT_EQ(count_of(log, line), 1u) << line;
}

std::string plan_of(const Value& value, int ranks) {
  TrainRequest request;
  Problems problems;
  request.config = value;
  request.settings = read_run_settings(value, "test.json", problems);
  request.registry = &built_plugins();
  request.chosen = choose_plugins(value, built_plugins(), "cpu", problems);
  problems.throw_if_any();
  request.setup.environment.world_size = request.setup.environment.local_size = ranks;
  request.setup.store = make_local_store();
  request.setup.log = make_console_log({});
  return describe_plan(request);
}

TEST(MemoryReport, a_plan_says_who_holds_what) {
  const TempFolder folder;
  const std::string text = plan_of(config(folder, "run", kBf16), 2);
  EXPECT_NE(text.find("memory per rank"), std::string::npos) << text;
  EXPECT_NE(text.find("parameters, bfloat16"), std::string::npos) << text;
  EXPECT_NE(text.find("optimizer/adamw: state"), std::string::npos) << text;
  EXPECT_NE(text.find("18.0"), std::string::npos) << "2 + 4 + 12 bytes and the padding of flat buffers: " << text;
}

TEST(StartOfARun, what_has_no_effect_is_said_once_by_rank_0_and_in_the_plan) {
  const TempFolder folder;
  const Value value =
      config(folder, "run", R"({"zero_optimization": {"stage": 1, "stage3_prefetch_bucket_size": 1000}})");
  const std::string line = "no effect: data_parallel/zero: ";
  EXPECT_EQ(count_of(plan_of(value, 2), line), 1u) << plan_of(value, 2);
  EXPECT_EQ(count_of(text_of(run_threads(value, 2).folder + "/log.txt"), line), 1u);
}

TEST(FinalWeights, are_the_same_file_however_the_state_is_shared_out) {
  const TempFolder folder;
  const std::string whole = text_of(run_threads(config(folder, "whole", "{}"), 3).weights_file());
  EXPECT_GT(whole.size(), 8e6);
  int number = 0;
  for (const Sharing& way : ways_to_share(3)) {
    const RunResult run = run_threads(config(folder, std::to_string(++number), concat("{", way.sections, "}")), 3);
    EXPECT_TRUE(text_of(run.weights_file()) == whole) << way.sections;
  }
}

TEST(FinalWeights, that_cannot_be_written_end_every_rank_with_the_reason) {
  const TempFolder folder;
  for (const char* sections : {"{}", R"({"data_parallel": "fsdp"})"}) {
    const Value value = config(folder, std::to_string(std::strlen(sections)), sections);
    const std::string path = value.find("output_dir")->as_string();
    std::filesystem::create_directories(path);
    std::ofstream(path + "/final") << "in the way";
    EXPECT_NE(error_of([&] { run_threads(value, 2); }).find("is there already and not an empty folder"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace drivetrain::test
