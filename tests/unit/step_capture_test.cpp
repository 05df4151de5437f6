// Recorded steps, with a device that writes down what it is asked for: what may be recorded, and in which order a
// training run records, replays and evaluates.
#include <gtest/gtest.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <set>

#include <drivetrain/device.h>
#include <drivetrain/testkit/kit/temp_folder.h>
#include "data/device_batches.h"
#include "flight/group.h"
#include "plan/prepare_run.h"
#include "plugin_calls/plugin_call.h"
#include "run/run.h"
#include "step/capture.h"
#include "step/trainer.h"
#include "step/update_scalars.h"
#include "support/idle_device.h"
#include "support/train_threads.h"

namespace drivetrain {
namespace {

using Events = std::vector<std::string>;

struct SpyGraph : DeviceGraph {
  SpyGraph(Events& log, int graph) : events(log), number(graph) {}
  void begin() override { write("begin"); }
  void end() override {
    write("end");
    if (broken)
      throw c10::AcceleratorError({__func__, __FILE__, 0}, 901, "CUDA error: operation failed due to a previous error");
  }
  bool is_whole() override { return !broken; }
  void replay() override { write("replay"); }
  void write(const std::string& what) { events.push_back(concat(what, " ", number)); }
  Events& events;
  int number;
  static inline bool broken = false;
};

// A CPU that says it is a device. What is recorded also runs; what is replayed does not.
struct SpyDevice : test::IdleDevice {
  DeviceMemory memory(const at::Device&) override { return {1, 2, 3, 4}; }
  void synchronize(const at::Device&) override {
    events.push_back("synchronize");
    if (fails) throw c10::AcceleratorError({__func__, __FILE__, 0}, 700, "CUDA error: an illegal memory access");
  }
  int64_t new_graph_pool() override { return pools++; }
  std::unique_ptr<DeviceGraph> new_graph(const at::Device&, int64_t pool) override {
    pools_used.insert(pool);
    return std::make_unique<SpyGraph>(events, ++graphs);
  }
  Events events;
  bool fails = false;  // what it does behind the last step
  int graphs = 0;
  int64_t pools = 0;
  std::set<int64_t> pools_used;
};

const at::Device kCpu(at::kCPU);

// --- one part

TEST(RecordedPart, runs_first_is_recorded_once_and_replayed_from_then_on) {
  SpyDevice device;
  RecordedPart part(device, kCpu, 0, 2);
  for (int step = 0; step < 5; ++step) {
    EXPECT_EQ(part.replays(), step > 2);
    part.run([&] { device.events.push_back("work"); });
  }
  EXPECT_EQ(device.events, (Events{"work", "work", "begin 1", "work", "end 1", "replay 1", "replay 1", "replay 1"}));
}

TEST(RecordedPart, each_replay_makes_the_recorded_calls_of_the_communicator_again) {
  SpyDevice device;
  const auto flight = std::make_shared<FlightRecord>(0, 1);
  const GroupPtr group = recorded_group(loopback_group(0, kCpu, "dp@0"), flight);
  RecordedPart part(device, kCpu, 0, 1, flight.get());
  for (int step = 1; step <= 4; ++step) {
    part.run([&] { group->all_reduce(at::empty({2}))->wait(); });
    EXPECT_EQ(flight->reached().at("dp@0"), step);
    EXPECT_EQ(flight->entries().back().state, step == 1 ? FlightState::done : FlightState::waiting);
    flight->device_reached();
  }
}

TEST(RecordedPart, what_fails_while_it_is_recorded_leaves_no_recording) {
  SpyDevice device;
  RecordedPart part(device, kCpu, 0, 0);
  EXPECT_THROW(part.run([] { throw fail(ErrorCode::internal, "broken"); }), Error);
  EXPECT_FALSE(part.replays());
  part.run([] {});
  EXPECT_EQ(device.events, (Events{"begin 1", "begin 2", "end 2", "replay 2"}));
}

TEST(RecordedPart, memory_that_runs_out_while_it_is_recorded_is_told_as_such) {
  SpyDevice device;
  RecordedPart part(device, kCpu, 0, 0);
  try {
    part.run([] { TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate 2.00 GiB"); });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::out_of_memory);
    for (const char* words : {"Tried to allocate 2.00 GiB", "\"capture\": false", "expandable_segments"})
      EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
  }
}

// Some plugin has waited for the device while it was recorded, and has caught what CUDA said of that.
TEST(RecordedPart, a_plugin_that_breaks_the_recording_is_named_though_it_says_nothing) {
  SpyDevice device;
  RecordedPart part(device, kCpu, 0, 0);
  const std::string good = "strategy/good", lies = "optimizer/lies";
  try {
    part.run([&] {
      plugin_call({good, "forward", "block.1"}, [] {});
      plugin_call({good, "forward", "block.2"}, [&] { plugin_call({lies, "touch"}, [] { SpyGraph::broken = true; }); });
      plugin_call({good, "forward", "block.3"}, [] {});
    });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::plugin);
    for (const char* words :
         {"in optimizer/lies, hook touch: broke the recording", "previous error", "\"capture\": false"})
      EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
  }
  SpyGraph::broken = false;
}

// The next launch of another plugin fails by what the first has done, and that plugin is not to blame.
TEST(RecordedPart, a_plugin_that_breaks_the_recording_is_named_though_another_meets_it) {
  const std::string good = "strategy/good", lies = "optimizer/lies";
  const auto recorded = [&](
                            const std::function<void()>& next, const std::function<void()>& then = [] {}) {
    SpyDevice device;
    RecordedPart part(device, kCpu, 0, 0);
    std::string said;
    try {
      part.run([&] {
        plugin_call({lies, "touch"}, [&] { SpyGraph::broken = true, then(); });
        plugin_call({good, "forward", "block.3"}, next);
      });
    } catch (const Error& e) {
      said = concat(static_cast<int>(e.code()), " ", e.what());
    }
    SpyGraph::broken = false;
    return said;
  };
  const std::string text = "CUDA error: operation failed due to a previous error during capture";
  for (const std::string& said : {recorded([&] {
                                    throw c10::AcceleratorError({"f", "f", 1}, 901, text);
                                  }),
                                  recorded([] { check_launch(901, "norm"); })}) {
    EXPECT_EQ(said.find("3 in optimizer/lies, hook touch: broke the recording"), 0u) << said;
    EXPECT_NE(said.find("in strategy/good, hook forward, unit block.3: "), std::string::npos) << said;
  }
  // The one that broke it tells so itself, as check_launch(cudaStreamSynchronize(...)) does.
  const std::string told = recorded([] {}, [] { check_launch(900, "wait"); });
  EXPECT_EQ(told.find("3 in optimizer/lies, hook touch: broke the recording of the step, of which it said that it may "
                      "be recorded: wait: the launch failed with status 900"),
            0u)
      << told;
  EXPECT_EQ(recorded([] {
              throw fail(ErrorCode::config, "of its own");
            }).find("2 in strategy/good, hook forward, unit block.3: of its own"),
            0u);
  EXPECT_EQ(recorded([] { check_launch(214, "norm"); }).find("8 in strategy/good"), 0u) << "a damaged GPU";
}

TEST(RecordedPart, a_device_that_fails_while_it_records_is_no_fault_of_the_recording) {
  SpyDevice device;
  RecordedPart part(device, kCpu, 0, 0);
  try {
    part.run([] { throw c10::AcceleratorError({__func__, __FILE__, 0}, 214, "CUDA error: uncorrectable ECC error"); });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::io) << e.what();
  }
}

// --- what is recorded

TEST(Capture, many_micro_batches_are_recorded_only_where_somebody_asks_for_it) {
  CaptureFacts facts;
  facts.device = "cuda", facts.micro_batches = 33;
  Problems problems;
  const CaptureChoice by_itself = choose_capture(facts, {}, problems);
  EXPECT_FALSE(by_itself.on);
  EXPECT_NE(by_itself.why_not.find("33 micro-batches in a step; up to 32"), std::string::npos) << by_itself.why_not;
  facts.wanted = Capture::on;
  EXPECT_TRUE(choose_capture(facts, {}, problems).on);
  facts.wanted = Capture::automatic, facts.micro_batches = 32;
  EXPECT_TRUE(choose_capture(facts, {}, problems).on);
  problems.throw_if_any();
}

// --- what stays in its place

TEST(DeviceBatches, every_step_finds_its_micro_batches_in_the_same_memory) {
  SpyDevice device;
  DeviceBatches batches(kCpu, &device);
  const auto batch = [](int64_t token) {
    Batch b;
    b.tokens_BS = at::full({2, 3}, token, at::kLong), b.labels_BS = at::full({2, 3}, token + 1, at::kLong);
    b.first_sample = 8, b.valid_tokens = 6;
    return b;
  };
  const Batch first = batches.put(0, batch(1)), other = batches.put(1, batch(5)), second = batches.put(0, batch(3));
  EXPECT_EQ(first.tokens_BS.const_data_ptr(), second.tokens_BS.const_data_ptr());
  EXPECT_NE(first.tokens_BS.const_data_ptr(), other.tokens_BS.const_data_ptr());
  EXPECT_EQ(second.tokens_BS[1][2].item<int64_t>(), 3);
  EXPECT_EQ(second.labels_BS[0][0].item<int64_t>(), 4);
  EXPECT_EQ(other.labels_BS[0][0].item<int64_t>(), 6);
  EXPECT_EQ(second.first_sample, 8);
  EXPECT_EQ(second.valid_tokens, 6);
}

TEST(UpdateScalars, the_device_sees_new_values_in_the_same_memory_once_they_are_sent) {
  SpyDevice device;
  UpdateScalars scalars(2, kCpu, &device);
  const UpdateArgs args = scalars.args();
  const double values[] = {1, 2, 3, 4, 5, 6};
  std::copy(values, values + 6, scalars.hyper());
  EXPECT_EQ(args.hyper[1][2].item<double>(), 0);
  scalars.send(0.25, 41);
  EXPECT_EQ(args.hyper[1][2].item<double>(), 6);
  EXPECT_EQ(args.hyper.sizes(), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(args.grad_scale.item<double>(), 0.25);
  EXPECT_EQ(args.step.item<int64_t>(), 41);
  EXPECT_FALSE(args.skip.item<bool>());
  for (const at::Tensor& t : {args.grad_scale, args.step, args.skip}) EXPECT_EQ(t.dim(), 0);
  scalars.hyper()[5] = 7;
  scalars.send(0.5, 42);
  EXPECT_EQ(args.hyper[1][2].item<double>(), 7);
  EXPECT_EQ(*args.step.const_data_ptr<int64_t>(), 42);
  EXPECT_EQ(*args.skip.const_data_ptr<bool>(), false);
}

TEST(UpdateScalars, what_stayed_on_the_host_reads_them_there) {
  SpyDevice device;
  UpdateScalars scalars(1, kCpu, &device);
  const UpdateArgs on_device = scalars.args(), on_host = scalars.args(kCpu);
  EXPECT_NE(on_device.hyper.const_data_ptr(), on_host.hyper.const_data_ptr());
  EXPECT_EQ(scalars.args(at::Device(at::kCUDA, 0)).hyper.const_data_ptr(), on_device.hyper.const_data_ptr());
  scalars.hyper()[2] = 3;
  scalars.send(0.5, 7, true);
  for (const UpdateArgs& args : {on_device, on_host}) {
    EXPECT_EQ(args.hyper[0][2].item<double>(), 3);
    EXPECT_EQ(args.grad_scale.item<double>(), 0.5);
    EXPECT_EQ(args.step.item<int64_t>(), 7);
    EXPECT_TRUE(args.skip.item<bool>());
  }
  const UpdateScalars plain(1, kCpu, nullptr);  // a run on the CPU has them once
  EXPECT_EQ(plain.args().hyper.const_data_ptr(), plain.args(kCpu).hyper.const_data_ptr());
}

// --- a whole run

struct SpyStrategy : Strategy {
  explicit SpyStrategy(Events& log) : events(log) {}
  void step_begin(StepContext&) override { events.push_back("step_begin"); }
  void before_forward(const Visit& v, StepContext& ctx) override {
    const bool training = ctx.mode() == Mode::train;
    if (v.unit == 0) events.push_back(concat(training ? "forward " : "evaluate ", v.micro));
    (training ? trained_on : evaluated_on).insert(ctx.batch().tokens_BS.const_data_ptr());
  }
  void after_backward(const Visit& v, StepContext& ctx) override {
    if (v.unit == 0) ctx.metric("spied", at::full({}, 5.0, at::kDouble));
    if (v.unit == 0) events.push_back(concat("backward ", v.micro));
  }
  void flush_grads(StepContext&) override { events.push_back("flush"); }
  void step_end(StepContext&) override { events.push_back("step_end"); }
  Events& events;
  std::set<const void*> trained_on, evaluated_on;  // where batches lay
};

// Passes everything on and keeps the arguments, whose tensors must stay those of the recorded call.
struct SpyOptimizer : Optimizer {
  SpyOptimizer(std::shared_ptr<Optimizer> optimizer, Events& log) : inner(std::move(optimizer)), events(log) {}
  std::vector<Hyper> groups() const override { return inner->groups(); }
  int group_of(const Param& param) const override { return inner->group_of(param); }
  double state_bytes_per_element(const Param&) const override { return 0; }
  void init(const Trainables& all) override { inner->init(all); }
  void state(StateVisitor& visitor) override { inner->state(visitor); }
  void update(const Trainables& chunk, const UpdateArgs& given) override {
    if (events.back() != "update") events.push_back("update");
    args = given;
    inner->update(chunk, given);
  }
  std::shared_ptr<Optimizer> inner;
  Events& events;
  UpdateArgs args;
};

struct SpiedRun {
  SpyDevice device;
  test::TempFolder folder;
  std::vector<Events> steps;          // what happened up to the end of each step and its evaluation
  std::vector<int64_t> updates_told;  // UpdateArgs::step after each step
  std::vector<Value> figures;

  void run() {
    TrainRequest request;
    Problems problems;
    request.config = parse_json(R"({
      "train_steps": 6, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2, "eval_interval": 5, "eval_iters": 1,
      "monitors": false, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 100, "warmup_type": "linear"}},
      "model": {"type": "gpt", "params": {"num_layers": 1, "hidden_size": 8, "num_attention_heads": 2, "vocab_size": 16,
                "max_position_embeddings": 8}},
      "dataset": {"type": "synthetic", "params": {"seq_length": 8}}, "optimizer": {"type": "AdamW", "params": {"lr": 0.5}}})",
                                "test");
    request.settings = read_run_settings(request.config, "test.json", problems);
    request.chosen = choose_plugins(request.config, test::built_plugins(), "cpu", problems);
    problems.throw_if_any();
    request.setup.store = make_local_store();
    request.setup.log = make_console_log({.rank = 1});
    Run run(std::move(
        *prepare_run(request.settings, request.chosen, test::built_plugins(), request.setup, Purpose::train)));
    build_run(run);
    const auto spy = std::make_shared<SpyStrategy>(device.events);
    run.plugins.strategies.push_back({"test/spy", spy});
    const auto optimizer = std::make_shared<SpyOptimizer>(run.plugins.optimizer, device.events);
    run.plugins.optimizer = optimizer;
    run.plan.capture.on = true;  // a real device gets it by itself
    const std::atomic<int> stop = 0;
    Trainer trainer(
        trainer_parts(run),
        [&](int64_t, Value data) {
          steps.push_back(std::exchange(device.events, {}));
          updates_told.push_back(optimizer->args.step.item<int64_t>());
          figures.push_back(std::move(data));
        },
        stop);
    last = trainer.train(), late_failure = trainer.late_failure();
    behind = std::exchange(device.events, {});
    trained_on = spy->trained_on, evaluated_on = spy->evaluated_on;
  }
  std::set<const void*> trained_on, evaluated_on;
  int64_t last = 0;
  Events behind;  // the last step
  std::exception_ptr late_failure;
};

struct CapturedRun : ::testing::Test {
  void SetUp() override {
    at::set_num_threads(1);
    set_device_runtime(&spied.device);
  }
  void TearDown() override { set_device_runtime(nullptr); }
  SpiedRun spied;
};

Events joined(std::initializer_list<Events> parts) {
  Events all;
  for (const Events& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

TEST_F(CapturedRun, three_steps_run_one_is_recorded_as_two_graphs_the_rest_is_replayed) {
  spied.run();
  ASSERT_EQ(spied.steps.size(), 6u);
  const Events begin = {"step_begin"}, end = {"step_end"}, update = {"update"},
               evaluation = {"evaluate 0", "evaluate 1"};
  const Events gradients = {"forward 0", "backward 0", "forward 1", "backward 1", "flush"};
  for (int step : {0, 1, 2}) EXPECT_EQ(spied.steps[step], joined({begin, gradients, update, end})) << step;
  EXPECT_EQ(
      spied.steps[3],
      joined({begin, {"begin 1"}, gradients, {"end 1", "replay 1", "begin 2"}, update, {"end 2", "replay 2"}, end}));
  EXPECT_EQ(spied.steps[4], joined({begin, {"replay 1", "replay 2"}, end, evaluation}));
  EXPECT_EQ(spied.steps[5], joined({begin, {"replay 1", "replay 2"}, end, evaluation}));
  EXPECT_EQ(spied.device.graphs, 2);
}

// Else nobody learns of it where nothing is saved; the step itself is done, and other ranks are not left waiting.
TEST_F(CapturedRun, the_device_is_waited_for_behind_the_last_step_and_what_fails_there_is_kept) {
  spied.run();
  EXPECT_EQ(spied.behind, Events{"synchronize"});
  EXPECT_EQ(spied.late_failure, nullptr);
  SpiedRun failing;
  failing.device.fails = true;
  set_device_runtime(&failing.device);
  failing.run();
  EXPECT_EQ(failing.last, 6);
  EXPECT_EQ(failing.steps.size(), 6u);
  ASSERT_NE(failing.late_failure, nullptr);
  EXPECT_THROW(std::rethrow_exception(failing.late_failure), c10::AcceleratorError);
}

TEST_F(CapturedRun, its_graphs_share_one_pool_and_an_evaluation_stays_out_of_the_batches_they_read) {
  spied.run();
  EXPECT_EQ(spied.device.pools_used, (std::set<int64_t>{0}));
  EXPECT_EQ(spied.trained_on.size(), 2u);  // micro-batches
  EXPECT_FALSE(spied.evaluated_on.empty());
  for (const void* place : spied.evaluated_on) EXPECT_EQ(spied.trained_on.count(place), 0u);
}

TEST_F(CapturedRun, every_step_sends_its_own_scalars_to_where_the_recording_reads_them) {
  spied.run();
  EXPECT_EQ(spied.updates_told, (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  for (size_t i = 2; i < spied.figures.size(); ++i)  // the first two updates have rate 0
    EXPECT_GT(spied.figures[i].find("lr")->as_double(), spied.figures[i - 1].find("lr")->as_double());
}

TEST_F(CapturedRun, figures_of_strategies_survive_replays_and_evaluations) {
  spied.run();
  for (const Value& figures : spied.figures) EXPECT_EQ(figures.find("spied")->as_double(), 5);
  EXPECT_EQ(spied.figures[0].find("peak_memory_bytes")->as_int(), 3);  // the device's
}

}  // namespace
}  // namespace drivetrain
