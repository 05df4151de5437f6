// Whole runs of two ranks whose steps are recorded, with a device whose replays do nothing: pipelines and sharded
// models hold their calls whole, and replays stand for the calls of steps that are not recorded, in the same order.
#include <gtest/gtest.h>

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <atomic>

#include <drivetrain/testkit/kit/temp_folder.h>
#include "plan/prepare_run.h"
#include "run/run.h"
#include "step/trainer.h"
#include "support/idle_device.h"
#include "support/train_threads.h"

namespace drivetrain {
namespace {

constexpr int64_t kRanks = 2, kSteps = 6, kRecorded = 4;  // the step that is recorded
constexpr int kLiesOn = 1;                                // the rank

// What is recorded also runs; a replay does not. Of the rank whose thread it is.
struct SilentGraph final : DeviceGraph {
  ~SilentGraph() override { recording = nullptr; }
  void begin() override { recording = this; }
  void end() override {
    recording = nullptr;
    if (broken)
      throw c10::AcceleratorError({__func__, __FILE__, 0}, 901, "CUDA error: operation failed due to a previous error");
  }
  bool is_whole() override { return !broken; }
  void replay() override {}
  bool broken = false;
  static inline thread_local SilentGraph* recording = nullptr;
};

struct SilentDevice final : test::IdleDevice {
  std::unique_ptr<DeviceGraph> new_graph(const at::Device&, int64_t) override {
    return ++graphs, std::make_unique<SilentGraph>();
  }
  std::atomic<int> graphs = 0;
};

struct RankOutcome {
  std::vector<double> losses;
  std::vector<std::string> calls;
  std::string error;
  ErrorCode code{};  // of the error
};

// What a plugin does within its hook that said that it may be recorded.
enum class Lie { none, breaks_the_recording, and_says_so };

struct Way {
  const char* config;
  bool told = true;  // Services::recorded; a run on the CPU says no
  Lie lie = Lie::none;
  std::string hook{};
};

// Waits for its device, as a plugin does that reads a value: the driver breaks the recording, and the plugin may keep
// that to itself.
struct Liar final : Strategy {
  Liar(Lie does, std::string in) : lie(does), hook(std::move(in)) {}
  void before_forward(const Visit&, StepContext&) override { act("before_forward"); }
  void after_backward(const Visit&, StepContext&) override { act("after_backward"); }
  void flush_grads(StepContext&) override { act("flush_grads"); }
  void after_update(Trainables&, StepContext&) override { act("after_update"); }
  void act(const std::string& here) const {
    if (here != hook || !SilentGraph::recording) return;
    SilentGraph::recording->broken = true;
    if (lie == Lie::and_says_so)
      throw c10::AcceleratorError({__func__, __FILE__, 0}, 900,
                                  "CUDA error: operation not permitted when stream is capturing");
  }
  const Lie lie;
  const std::string hook;
};

void train_rank(const Way& way, bool recorded, int rank, const std::shared_ptr<Store>& store, RankOutcome& to) {
  at::set_num_threads(1);
  TrainRequest request;
  Problems problems;
  request.config = parse_json(
      concat(R"({
      "train_steps": )",
             kSteps,
             R"(, "train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "eval_interval": 5, "eval_iters": 1,
      "monitors": false, "communicator": {"type": "local", "params": {"share": false}}, "attention": "standard",
      "model": {"type": "gpt", "params": {"num_layers": 2, "hidden_size": 8, "num_attention_heads": 2, "vocab_size": 16,
                "max_position_embeddings": 8}},
      "dataset": {"type": "synthetic", "params": {"seq_length": 8}}, "optimizer": {"type": "AdamW", "params": {"lr": 0.1}}, )",
             way.config, "}"),
      "test");
  request.settings = read_run_settings(request.config, "test.json", problems);
  request.chosen = choose_plugins(request.config, test::built_plugins(), "cpu", problems);
  problems.throw_if_any();
  request.setup.environment.rank = request.setup.environment.local_rank = rank;
  request.setup.environment.world_size = request.setup.environment.local_size = kRanks;
  request.setup.store = store;
  request.setup.log = make_console_log({.rank = 1});
  const auto flight = request.setup.flight = std::make_shared<FlightRecord>(rank, kRanks);
  Run run(
      std::move(*prepare_run(request.settings, request.chosen, test::built_plugins(), request.setup, Purpose::train)));
  run.services->recorded = way.told;
  try {
    build_run(run);
    if (way.lie != Lie::none && rank == kLiesOn)
      run.plugins.strategies.push_back({"strategy/liar", std::make_shared<Liar>(way.lie, way.hook)});
    run.plan.capture.on = recorded;
    const std::atomic<int> stop = 0;
    Trainer trainer(
        trainer_parts(run), [&](int64_t, Value data) { to.losses.push_back(data.find("loss")->as_double()); }, stop);
    trainer.train();
  } catch (const Error& e) {
    to.error = e.what(), to.code = e.code();
    run.plugins.communicator->abort(e.what());
  }
  for (const FlightEntry& e : flight->entries())
    to.calls.push_back(
        concat(e.group, " ", name_of(e.call.op), " #", e.call.number, " of ", e.call.bytes, " with ", e.call.peer));
}

std::vector<RankOutcome> train(const Way& way, bool recorded) {
  const auto store = make_local_store();
  std::vector<RankOutcome> ranks(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&, rank] { train_rank(way, recorded, rank, store, ranks[static_cast<size_t>(rank)]); });
  for (std::thread& thread : threads) thread.join();
  return ranks;
}

class RecordedRanks : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override { set_device_runtime(&device_); }
  void TearDown() override { set_device_runtime(nullptr); }
  SilentDevice device_;
};

TEST_P(RecordedRanks, make_the_calls_of_steps_that_are_not_recorded) {
  const std::vector<RankOutcome> as_it_is = train(GetParam(), false);
  EXPECT_EQ(device_.graphs, 0);
  const std::vector<RankOutcome> recorded = train(GetParam(), true);
  EXPECT_EQ(device_.graphs, 2 * kRanks);
  for (size_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(recorded[rank].error + as_it_is[rank].error, "");
    EXPECT_EQ(recorded[rank].calls, as_it_is[rank].calls);
    ASSERT_EQ(recorded[rank].losses.size(), static_cast<size_t>(kSteps));
    // Behind the recorded one nothing is computed here.
    for (int64_t step = 0; step < kRecorded; ++step)
      EXPECT_EQ(recorded[rank].losses[step], as_it_is[rank].losses[step]) << "step " << step + 1;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ways, RecordedRanks,
    testing::Values(Way{R"("pipeline": {"type": "gpipe", "params": {"stages": 2}})"},
                    Way{R"("pipeline": {"type": "one_f_one_b", "params": {"stages": 2}})"},
                    Way{R"("pipeline": {"type": "interleaved", "params": {"stages": 2, "chunks": 2}})"},
                    Way{R"("pipeline": {"type": "zero_bubble_h1", "params": {"stages": 2}})"},
                    Way{R"("zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0})"},
                    Way{R"("data_parallel": {"type": "fsdp", "params": {"prefetch": 1}})"},
                    Way{R"("zero_optimization": {"stage": 1})"}, Way{R"("zero_optimization": {"stage": 2})"}),
    [](const auto& info) { return concat("way_", info.index); });

// Where ZeRO is told that nothing is recorded, it gathers behind the update.
TEST_F(RecordedRanks, a_gather_that_would_cross_the_end_of_a_recorded_update_is_named) {
  std::string errors;  // a rank may have the other one's abort
  for (const RankOutcome& rank : train({R"("zero_optimization": {"stage": 1})", false}, true))
    errors += rank.error + "\n";
  for (const char* words : {"data_parallel/zero, hook before_forward", "waits for all_gather #",
                            "made before this part of the step", "set \"capture\": false"})
    EXPECT_NE(errors.find(words), std::string::npos) << words << " in " << errors;
}

// Named, not hung: the rank ends with the plugin's name and code, and its peer, which waits for it within the step or
// behind it, with what that rank said.
TEST_P(RecordedRanks, end_with_the_name_of_a_plugin_that_lies_on_one_of_them) {
  for (const Lie lie : {Lie::breaks_the_recording, Lie::and_says_so})
    for (const std::string hook : {"before_forward", "after_backward", "flush_grads", "after_update"}) {
      const std::vector<RankOutcome> ranks = train({GetParam().config, true, lie, hook}, true);
      const RankOutcome &liar = ranks[kLiesOn], &peer = ranks[0];
      const std::string named = "in strategy/liar, hook " + hook;
      EXPECT_EQ(liar.code, ErrorCode::plugin) << liar.error;
      EXPECT_EQ(liar.error.find(named), 0U) << liar.error;
      EXPECT_NE(liar.error.find("\"capture\": false"), std::string::npos) << liar.error;
      EXPECT_NE(liar.error.find("broke the recording"), std::string::npos) << liar.error;
      EXPECT_EQ(liar.error.find(named, 1), std::string::npos) << "named once: " << liar.error;
      EXPECT_EQ(peer.code, ErrorCode::communication) << hook << peer.error;
      EXPECT_NE(peer.error.find("rank 1 aborted: " + named), std::string::npos) << peer.error;
      EXPECT_EQ(liar.losses.size(), static_cast<size_t>(kRecorded - 1)) << hook;
    }
}

}  // namespace
}  // namespace drivetrain
