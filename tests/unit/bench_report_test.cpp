// The parts of the benchmarks that need no clock: is the machine idle, spreads, tables, and the config of a timed run.
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "bench/collective_case.h"
#include "bench/machine.h"
#include "bench/step_config.h"
#include "bench/table.h"
#include "bench/timing.h"
#include "cli/commands.h"
#include "cli/parse.h"
#include "contract/device_runtime.h"
#include "support/idle_device.h"

namespace drivetrain {
namespace {

constexpr const char* kEarlier = "cpu  100 0 50 1000 10 0 0 0 7 0\ncpu0 1 2 3 4\n";

TEST(BenchMachine, busy_is_what_is_neither_idle_nor_waiting_for_a_disk) {
  EXPECT_EQ(busy_between(kEarlier, "cpu  100 0 50 1080 30 0 0 0 7 0\n"), 0);
  EXPECT_NEAR(busy_between(kEarlier, "cpu  120 5 60 1050 15 0 0 10 20 0\n"), 0.45, 1e-12);
  EXPECT_EQ(busy_between(kEarlier, "cpu  200 0 50 1000 10 0 0 0 7 0\n"), 1);
}

TEST(BenchMachine, a_machine_that_tells_nothing_counts_as_idle) {
  EXPECT_EQ(busy_between("", ""), 0);
  EXPECT_EQ(busy_between(kEarlier, kEarlier), 0);
}

TEST(BenchMachine, a_busy_machine_is_told_in_its_line_and_in_the_object) {
  BenchMachine machine;
  machine.processor = "some processor", machine.cores = 2, machine.busy_share = 0.63, machine.idle = false;
  EXPECT_NE(machine_text(machine, 2).find("NOT IDLE: others had 63 %"), std::string::npos) << machine_text(machine, 2);
  EXPECT_FALSE(machine_value(machine, 2).find("idle")->as_bool());
  machine.idle = true;
  EXPECT_EQ(machine_text(machine, 1), "machine: some processor, 2 cores, 1 thread; idle before the benchmark\n");
}

TEST(BenchMachine, with_an_accelerator_only_the_processors_are_told_idle) {
  BenchMachine machine;
  machine.processor = "some processor", machine.accelerator = true;
  EXPECT_EQ(machine_text(machine, 1),
            "machine: some processor, 1 core, 1 thread; processors idle before the benchmark\n");
  machine.idle = false, machine.busy_share = 0.5;
  EXPECT_NE(machine_text(machine, 1).find("processors NOT IDLE: others had 50 % of them"), std::string::npos);
}

TEST(BenchTiming, the_median_of_an_even_number_lies_between_the_middle_two) {
  const Spread odd = spread_of({3, 1, 2}), even = spread_of({4, 1, 3, 2}), one = spread_of({5});
  EXPECT_EQ(odd.median, 2);
  EXPECT_EQ(even.median, 2.5);
  EXPECT_EQ(even.min, 1);
  EXPECT_EQ(even.max, 4);
  EXPECT_EQ(one.median, 5);
}

TEST(BenchTable, names_stand_left_and_figures_right) {
  TextTable table({"kernel", "time"});
  table.row({"norm", "1.2 ms"});
  table.row({"cross_entropy", "10 ms"});
  EXPECT_EQ(table.text(), "kernel           time\nnorm           1.2 ms\ncross_entropy   10 ms\n");
}

TEST(BenchTable, seconds_choose_their_unit) {
  EXPECT_EQ(seconds_text(1.23456), "1.235 s");
  EXPECT_EQ(seconds_text(0.1234), "123.4 ms");
  EXPECT_EQ(seconds_text(0.01234), "12.34 ms");
  EXPECT_EQ(seconds_text(1.25e-6), "1.2 us");
}

TEST(BenchCollectives, bandwidth_on_the_bus_is_counted_as_nccl_tests_count_it) {
  for (const int64_t n : {2, 3, 8, 512}) {
    const auto ranks = static_cast<double>(n);
    EXPECT_DOUBLE_EQ(bus_factor("all_reduce", n), 2 * (ranks - 1) / ranks);
    for (const char* name : {"all_gather", "reduce_scatter", "all_to_all"})
      EXPECT_DOUBLE_EQ(bus_factor(name, n), (ranks - 1) / ranks) << name;
    for (const char* name : {"broadcast", "send_recv"}) EXPECT_EQ(bus_factor(name, n), 1) << name;
  }
  EXPECT_EQ(collective_names().size(), 6u);
  EXPECT_THROW(bus_factor("all_sum", 2), Error);
}

TEST(BenchCollectives, sizes_have_units_and_grow_four_times_to_the_largest) {
  EXPECT_EQ(bytes_of_text("--sizes", "17"), 17);
  EXPECT_EQ(bytes_of_text("--sizes", "64K"), 65536);
  EXPECT_EQ(bytes_of_text("--sizes", "1024G"), int64_t{1} << 40);
  for (const char* text : {"", "K", "0", "-4", "4k", "1.5M", "2000G", "99999999999999999999"})
    EXPECT_THROW(bytes_of_text("--sizes", text), Error) << text;
  EXPECT_EQ(payload_sizes(4096, 4096), (std::vector<int64_t>{4096}));
  EXPECT_EQ(payload_sizes(4, 40), (std::vector<int64_t>{4, 16, 40}));
  EXPECT_THROW(payload_sizes(5, 4), Error);
}

// Says that everything is done and does nothing.
class IdleGroup final : public Group {
 public:
  int64_t rank() const override { return 1; }
  const std::vector<int64_t>& ranks() const override { return ranks_; }
  const std::string& label() const override { return label_; }
  at::Tensor allocate(int64_t numel, at::ScalarType dtype) override { return at::zeros({numel}, dtype); }
  WorkPtr all_reduce(at::Tensor) override { return completed_work(); }
  WorkPtr all_gather(at::Tensor, at::Tensor) override { return completed_work(); }
  WorkPtr reduce_scatter(at::Tensor, at::Tensor) override { return completed_work(); }
  WorkPtr all_to_all(at::Tensor, at::Tensor) override { return completed_work(); }
  WorkPtr all_to_all(at::Tensor, at::Tensor, const std::vector<int64_t>&, const std::vector<int64_t>&) override {
    return completed_work();
  }
  WorkPtr broadcast(at::Tensor, int64_t) override { return completed_work(); }
  WorkPtr send(at::Tensor, int64_t) override { return completed_work(); }
  WorkPtr recv(at::Tensor, int64_t) override { return completed_work(); }
  void batch_begin() override {}
  void batch_end() override {}
  void barrier() override {}

 private:
  std::vector<int64_t> ranks_{0, 1};
  std::string label_ = "idle";
};

TEST(BenchCollectives, a_communicator_that_moves_nothing_is_found_out) {
  for (const std::string& name : collective_names()) {
    CollectiveCase one(name, BufferKind::private_, 4096, std::make_shared<IdleGroup>(), at::kCPU);
    EXPECT_EQ(one.bytes(), 4096);
    try {
      one.check();
      ADD_FAILURE() << name;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::communication);
      EXPECT_NE(std::string(e.what()).find(name + " of 4096 bytes in private buffers gave wrong values: element 0 is"),
                std::string::npos)
          << e.what();
    }
  }
}

TEST(BenchCollectives, memory_that_exists_once_is_asked_for_and_may_be_refused) {
  const CollectiveCase one("all_gather", BufferKind::once, 4096, std::make_shared<IdleGroup>(), at::kCPU);
  EXPECT_FALSE(one.exists());
}

TEST(BenchCollectives, the_table_of_options_names_every_collective) {
  const cli::Option* const op = cli::find_option(*cli::find_command("bench collectives"), "--op");
  EXPECT_EQ(cli::split(op->choices, '|'), collective_names());
}

Value step_config(std::vector<std::string> words, std::string* problem = nullptr) {
  words.insert(words.begin(), {"bench", "step"});
  Problems problems;
  std::string path;
  const Value config = bench_step_config(cli::parse(words), path, problems);
  if (problem) *problem = problems.text();
  return config;
}

int64_t at(const Value& config, const std::vector<std::string>& path) {
  const Value* value = &config;
  for (const std::string& key : path) value = value->find(key);
  return value->as_int();
}

TEST(BenchStepConfig, without_a_file_it_is_gpt2_124m) {
  const Value config = step_config({});
  EXPECT_EQ(at(config, {"model", "params", "num_layers"}), 12);
  EXPECT_EQ(at(config, {"model", "params", "vocab_size"}), 50304);
  EXPECT_EQ(at(config, {"train_micro_batch_size_per_gpu"}), 4);
  EXPECT_FALSE(config.find("save_final")->as_bool());
}

TEST(BenchStepConfig, options_and_set_change_the_shape) {
  const Value config = step_config({"--layers", "2", "--hidden", "64", "--heads", "4", "--vocab", "300", "--batch", "3",
                                    "--seq", "2048", "--threads", "1", "--set", "gradient_clipping=0.5"});
  EXPECT_EQ(at(config, {"model", "params", "num_layers"}), 2);
  EXPECT_EQ(at(config, {"model", "params", "hidden_size"}), 64);
  EXPECT_EQ(at(config, {"model", "params", "num_attention_heads"}), 4);
  EXPECT_EQ(at(config, {"train_micro_batch_size_per_gpu"}), 3);
  EXPECT_EQ(at(config, {"dataset", "params", "seq_length"}), 2048);
  EXPECT_EQ(at(config, {"model", "params", "max_position_embeddings"}), 2048);  // longer sequences want more positions
  EXPECT_EQ(at(config, {"threads"}), 1);
  EXPECT_EQ(config.find("gradient_clipping")->as_double(), 0.5);
}

TEST(BenchStepConfig, a_dtype_is_a_section_of_the_config) {
  EXPECT_TRUE(step_config({"--dtype", "bf16"}).find("bf16")->find("enabled")->as_bool());
  EXPECT_EQ(step_config({"--dtype", "f32"}).find("bf16"), nullptr);
  EXPECT_THROW(step_config({"--dtype", "f16"}), UsageError);  // no plugin trains in it
}

TEST(BenchStepConfig, a_dtype_takes_the_place_of_every_section_that_a_precision_claims) {
  for (const char* before : {R"(bf16={"enabled": true})", R"(bfloat16={"enabled": true})", R"(fp16={"enabled": true})",
                             R"(precision={"type": "fp16"})"}) {
    const Value plain = step_config({"--dtype", "f32", "--set", before});
    for (const char* section : {"bf16", "bfloat16", "fp16", "precision"})
      EXPECT_EQ(plain.find(section), nullptr) << before;
  }
  const Value half = step_config({"--dtype", "fp16", "--set", R"(bf16={"enabled": true})"});
  EXPECT_EQ(half.find("bf16"), nullptr);
  EXPECT_TRUE(half.find("fp16")->find("enabled")->as_bool());
}

TEST(BenchStepConfig, a_size_takes_the_place_of_the_option_under_whatever_name) {
  const Value config = step_config({"--layers", "2", "--hidden", "64", "--seq", "2048", "--set", "model.params=null",
                                    "--set", R"(model.params={"n_layer": 5, "n_embd": 32, "n_inner": 7, "n_ctx": 9})"});
  EXPECT_EQ(config.find("model")->find("params")->to_json(),
            R"({"num_layers":2,"hidden_size":64,"max_position_embeddings":2048})");
}

TEST(BenchStepConfig, a_wrong_set_is_told_by_its_number) {
  std::string problem;
  step_config({"--set", "nonsense"}, &problem);
  EXPECT_NE(problem.find("--set #1"), std::string::npos) << problem;
  EXPECT_THROW(step_config({"--layers", "many"}), UsageError);
}

// An accelerator whose clock is counted: a launch reaches an idle device late, a call takes its time there.
struct CountedDevice : test::IdleDevice {
  struct Mark : DeviceMark {
    explicit Mark(CountedDevice& of) : device(of) {}
    void record() override { at = device.now; }
    double seconds_since(const DeviceMark& earlier) override { return at - dynamic_cast<const Mark&>(earlier).at; }
    CountedDevice& device;
    double at = 0;
  };
  void synchronize(const at::Device&) override { idle = true; }
  std::unique_ptr<DeviceMark> new_mark(const at::Device&) override { return std::make_unique<Mark>(*this); }

  void call(double seconds) {
    now += seconds + (idle ? launch : 0);
    idle = false;
    ++calls;
  }
  static constexpr double launch = 5e-6;
  double now = 0;
  bool idle = true;
  int64_t calls = 0;
};

struct DeviceTiming : ::testing::Test {
  void SetUp() override { set_device_runtime(&device); }
  void TearDown() override { set_device_runtime(nullptr); }
  CountedDevice device;
  const at::Device gpu{at::kCUDA, 0};
};

TEST_F(DeviceTiming, a_short_kernel_is_timed_without_its_launch) {
  EXPECT_NEAR(seconds_of(gpu, [&] { device.call(15e-6); }), 20e-6, 1e-9);
  for (const double seconds : {1e-6, 15e-6, 300e-6})
    EXPECT_NEAR(seconds_of_each(gpu, [&] { device.call(seconds); }), seconds, 0.01 * seconds) << seconds;
}

TEST_F(DeviceTiming, what_takes_long_is_called_once_and_what_takes_no_time_comes_to_an_end) {
  EXPECT_NEAR(seconds_of_each(gpu, [&] { device.call(0.5); }), 0.5, 1e-4);
  EXPECT_EQ(device.calls, 1);
  EXPECT_LT(seconds_of_each(gpu, [&] { device.call(0); }), 1e-8);
}

}  // namespace
}  // namespace drivetrain
