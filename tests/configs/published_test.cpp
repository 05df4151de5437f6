// The shapes of the published studies, planned on the worlds they are meant for: nothing is allocated, no rank waits
// for another. What a plan says is held against closed formulas: parameters of the model and of each stage, and what
// fits into a GPU of 80 GB.
#include <gtest/gtest.h>

#include <fstream>
#include <regex>

#include "config_files/load.h"
#include "plan/prepare_run.h"
#include "report/memory_report.h"
#include "report/plan_text.h"
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

struct Published {
  const char* name;
  // Layers, width, query heads, key heads, inner width of the MLP, vocabulary, positions; the number of parameters that
  // is told of it.
  double L, h, a, g, f, V, S, parameters;
  int64_t ranks;
};

// gpt_2.7b: Brown et al. 2020 say 2.7 B; tied, learned positions, layer norms, biases. The others: Llama's block.
constexpr Published kShapes[] = {
    {"gpt_2.7b", 32, 2560, 32, 32, 10240, 50304, 2048, 2'651'673'600, 8},
    {"internlm_7b", 32, 4096, 32, 32, 11008, 103168, 2048, 7'321'948'160 - 32 * 4096,
     8},  // without the output's biases
    {"internlm_20b", 60, 5120, 40, 40, 13824, 103168, 4096, 20'089'943'040 - 60 * 5120, 32},
    {"llama2_7b", 32, 4096, 32, 32, 11008, 32000, 4096, 6'738'415'616, 8},
    {"llama2_70b", 80, 8192, 64, 8, 28672, 32000, 4096, 68'976'648'192, 64},
    {"yi_34b", 60, 7168, 56, 8, 20480, 64000, 32768, 34'388'917'248, 64},
};

double closed_formula(const Published& p) {
  const double d = p.h / p.a;
  if (p.name == std::string("gpt_2.7b")) return p.L * (12 * p.h * p.h + 13 * p.h) + (p.V + p.S) * p.h + 2 * p.h;
  const bool biases = std::string(p.name).rfind("internlm", 0) == 0;
  return p.L * (p.h * d * (p.a + 2 * p.g) + p.a * d * p.h + 3 * p.h * p.f + 2 * p.h) + 2 * p.h * p.V + p.h +
         (biases ? p.L * d * (p.a + 2 * p.g) : 0);
}

std::string config_of(const std::string& name) { return DRIVETRAIN_SOURCE_DIR "/configs/" + name + ".json"; }

// `sections`: in place of the file's.
std::unique_ptr<PreparedRun> planned(const std::string& name, int64_t ranks,
                                     const std::vector<std::pair<std::string, std::string>>& sections = {}) {
  Problems problems;
  Value config = load_config(config_of(name), {}, problems);
  for (const auto& [key, value] : sections) config.set(key, parse_json(value, "test"));
  const RunSettings settings = read_run_settings(config, config_of(name), problems);
  auto chosen = choose_plugins(config, built_plugins(), settings.device, problems);
  problems.throw_if_any();
  static const std::shared_ptr<Log> log = make_console_log({.level = LogLevel::error});
  RankSetup setup{{}, make_local_store(), log};
  setup.environment.world_size = ranks, setup.environment.local_size = std::min<int64_t>(ranks, 8);
  return prepare_run(settings, std::move(chosen), built_plugins(), setup, Purpose::train);
}

class PublishedShape : public testing::TestWithParam<Published> {
 protected:
  const std::unique_ptr<PreparedRun> run_ = planned(GetParam().name, GetParam().ranks);
};

TEST_P(PublishedShape, has_the_published_number_of_parameters) {
  EXPECT_EQ(closed_formula(GetParam()), GetParam().parameters);
  EXPECT_EQ(static_cast<double>(run_->plan.model.parameters), GetParam().parameters);
  EXPECT_EQ(run_->plan.run.seq_length, static_cast<int64_t>(GetParam().S));
}

// Every unit stands once, in order; pieces of a pipeline cost about the same; their parameters are the model's, and
// what tensor-parallel ranks hold beside each other - norms, padding - is little.
TEST_P(PublishedShape, is_placed_in_whole_and_evenly) {
  const std::vector<PlacedPiece>& pieces = run_->plan.placement;
  ASSERT_EQ(static_cast<int64_t>(pieces.size()), run_->plan.schedule.stages * run_->plan.schedule.chunks);
  int64_t next = 0;
  double parameters = 0, cost = 0, most = 0;
  for (const PlacedPiece& piece : pieces) {
    EXPECT_EQ(piece.first, next);
    EXPECT_GT(piece.last, piece.first);
    next = piece.last;
    parameters += static_cast<double>(piece.parameters);
    cost += piece.cost, most = std::max(most, piece.cost);
  }
  EXPECT_EQ(next, static_cast<int64_t>(GetParam().L) + 2);  // embedding and head
  EXPECT_LE(most * static_cast<double>(pieces.size()) / cost, 1.2);
  const double all = parameters * static_cast<double>(run_->plan.run.tensor_ranks.value());
  EXPECT_GE(all, GetParam().parameters);
  EXPECT_LE(all, 1.001 * GetParam().parameters);
}

TEST_P(PublishedShape, fits_into_80_gigabytes_and_moves_something) {
  const PlannedMemory memory = planned_memory(run_->plan);
  const double sum = memory.together();
  EXPECT_LT(sum, 72e9) << "8 GB are for the driver, communication buffers and gaps\n" << plan_text(run_->plan);
  EXPECT_GT(sum, 5e9);
  EXPECT_GT(memory[MemoryClass::activations], 1e8);
  // 16-bit parameters, float32 gradients, masters and moments: 18 bytes, less what is sharded, and at least its
  // equal part.
  const double each = 18 * GetParam().parameters / static_cast<double>(GetParam().ranks);
  EXPECT_GE(memory.states(), 0.99 * each);
  double traffic = 0;
  for (const auto& t : run_->plan.traffics) {
    traffic += t.bytes;
  }
  EXPECT_GT(traffic, 1e8);
  EXPECT_EQ(traffic_text(run_->plan).find("what recompute sends again is not counted") != std::string::npos,
            run_->plugins.recompute != nullptr);
  for (const Axis& axis : run_->plan.mesh.axes) {
    const bool told = std::any_of(run_->plan.traffics.begin(), run_->plan.traffics.end(),
                                  [&](const auto& t) { return t.axis == axis.name && t.bytes > 0; });
    // Gradients are summed over dp and the parts of a sequence at once, so one of them may have no line of its own.
    EXPECT_TRUE(told || axis.size == 1 || axis.joins_gradients) << axis.name;
  }
}

// Ranks of every stage have a plan, which holds the whole model's states once over all of them, or more often; and a
// verdict for a device.
TEST_P(PublishedShape, has_a_verdict_for_every_rank) {
  const RunPlan& plan = run_->plan;
  const DeviceCapacity device{.bytes = 80e9, .context = 1e9, .communicator = 0.5e9, .fragmentation = 0.02};
  const std::vector<MemoryVerdict> verdicts = memory_verdicts(plan, device);
  ASSERT_EQ(static_cast<int64_t>(verdicts.size()), plan.schedule.stages);
  int64_t ranks = 0;
  double states = 0;
  for (const MemoryVerdict& verdict : verdicts) {
    ranks += verdict.ranks;
    EXPECT_TRUE(verdict.fits()) << verdict_text(verdict);
    EXPECT_EQ(stage_of_rank(plan, verdict.first_rank), verdict.stage);
    EXPECT_GT(verdict.needed, device.context + device.communicator);
    states += static_cast<double>(verdict.ranks) * memory_by_stage(plan)[static_cast<size_t>(verdict.stage)].states();
  }
  EXPECT_EQ(ranks, plan.run.world_size);
  EXPECT_GE(states, 0.99 * 18 * GetParam().parameters);
  EXPECT_FALSE(memory_verdicts(plan, {.bytes = 4e9}).front().fits());
}

TEST_P(PublishedShape, is_planned_for_thousands_of_ranks) {
  const int64_t ranks = GetParam().ranks * 64;
  Problems problems;
  const std::string path = config_of(GetParam().name);
  Value config = load_config(path, {}, problems);
  RunSettings settings = read_run_settings(config, path, problems);
  settings.train_batch_size = *settings.train_batch_size * 64;
  auto chosen = choose_plugins(config, built_plugins(), settings.device, problems);
  RankSetup setup{{}, make_local_store(), make_console_log({.level = LogLevel::error})};
  setup.environment.world_size = ranks, setup.environment.local_size = 8;
  const auto run = prepare_run(settings, std::move(chosen), built_plugins(), setup, Purpose::train);
  EXPECT_EQ(run->plan.run.world_size, ranks);
  EXPECT_LT(planned_memory(run->plan).states(), planned_memory(run_->plan).states());
}

// Rajbhandari et al. 2020, "ZeRO", figure 1, with 16-bit parameters (2 bytes), float32 gradients (4) and 12 bytes of
// masters and moments: what N ranks share out is a part of N.
TEST(ZeroFormulas, hold_for_7b_parameters_on_8_to_1024_ranks) {
  for (const int64_t ranks : {8, 64, 1024})
    for (int stage = 0; stage <= 3; ++stage) {
      const auto run = planned(
          "llama2_7b", ranks,
          {{"data_parallel", stage == 0 ? R"("ddp")" : "null"},
           {"zero_optimization", concat(R"({"stage": )", stage, R"(, "stage3_param_persistence_threshold": 0})")},
           {"train_batch_size", "null"},
           {"gradient_accumulation_steps", "1"},
           {"train_micro_batch_size_per_gpu", "1"}});
      const double n = static_cast<double>(run->plan.mesh.batch_ranks()), share = 18;
      ASSERT_EQ(run->plan.mesh.batch_ranks(), ranks) << "the file's other axes are of one rank";
      const double want[] = {share, 6 + 12 / n, 2 + 16 / n, share / n};
      const double found = planned_memory(run->plan).states() / 6'738'415'616;
      EXPECT_NEAR(found, want[stage], 0.02 * want[stage]) << "stage " << stage << " on " << ranks << " ranks";
    }
}

// Where and how to start it stands in the file, and is the world it is tested for.
TEST_P(PublishedShape, says_in_its_file_for_how_many_ranks_it_is) {
  std::ifstream file(config_of(GetParam().name));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::smatch match;
  ASSERT_TRUE(std::regex_search(text, match, std::regex("launch -n ([0-9]+) configs/([a-z0-9_.]+)\\.json")));
  EXPECT_EQ(std::stoll(match[1]), GetParam().ranks);
  EXPECT_EQ(match[2], GetParam().name);
}

// Each of 4 chunks of an inner stage sends an activation on and a gradient back per micro-batch: 32 of them, of 4096
// tokens of 8192 numbers of two bytes, of which a rank of eight has an eighth between layers.
TEST(Llama2_70b, sends_its_share_of_the_positions_between_stages) {
  const auto run = planned("llama2_70b", 64);
  double sent = 0;
  for (const auto& t : run->plan.traffics)
    if (t.axis == Schedule::kAxis) sent += t.bytes;
  EXPECT_EQ(sent, 4.0 * 2 * 32 * (4096.0 / 8) * 8192 * 2);
}

INSTANTIATE_TEST_SUITE_P(Of, PublishedShape, testing::ValuesIn(kShapes), [](const auto& info) {
  std::string name = info.param.name;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
});

}  // namespace
}  // namespace drivetrain::test
