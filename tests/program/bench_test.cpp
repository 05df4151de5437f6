// `drivetrain bench`: structure of its objects and tables, and what it refuses. Never what anything took.
#include "program/bench_fixture.h"

namespace drivetrain::test {
namespace {

double seconds_in(const Value& phases) {
  double sum = 0;
  for (const Value::Member& phase : phases.members()) {
    EXPECT_GE(phase.value.as_double(), 0) << phase.key;
    sum += phase.value.as_double();
  }
  return sum;
}

TEST_F(Bench, step_times_the_run_of_a_config_and_writes_no_run_folder) {
  const Value value = object("step " + path("tiny.json") + " --steps 3 --warmup 1");
  EXPECT_EQ(value.find("bench")->as_string(), "step");
  const Value::Array& steps = value.find("steps")->items();
  ASSERT_EQ(steps.size(), 4u);
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i].find("timed")->as_bool(), i > 0);
    EXPECT_GT(steps[i].find("loss")->as_double(), 0);
    if (i == 0) continue;
    const double sum = seconds_in(*steps[i].find("phases_s")), step = steps[i].find("step_s")->as_double();
    EXPECT_LE(sum, step * 1.001);
    EXPECT_GE(sum, step * 0.5);
  }
  expect_spread(value, "step_s");
  for (const char* key : {"tokens_per_s", "tgs", "tflops", "share_of_products", "peak_memory_bytes"})
    EXPECT_GT(value.find(key)->as_double(), 0) << key;
  const Value& limit = *value.find("limit");
  EXPECT_DOUBLE_EQ(limit.find("seconds")->as_double(),
                   limit.find("products_s")->as_double() + limit.find("memory_s")->as_double());
  EXPECT_EQ(limit.find("products_s")->as_double(), value.find("products")->find("seconds")->as_double());
  // Master and two moments read and written, the gradient read twice: 32 bytes of each of the 4592 parameters.
  EXPECT_EQ(limit.find("update_bytes")->as_double(), 4592 * 32);
  EXPECT_EQ(value.find("run")->find("parameters")->as_int(), 4592);
  for (const std::string& name : files()) EXPECT_EQ(name.find("run"), std::string::npos) << name;
}

TEST_F(Bench, step_trains_what_train_trains) {
  const Value value = object("step " + path("tiny.json") + " --steps 4 --warmup 1");
  ASSERT_EQ(train().code, 0);
  const std::vector<Value> lines = read_metrics(path("run"));
  ASSERT_EQ(lines.size(), 5u);
  for (size_t i = 0; i < lines.size(); ++i)
    EXPECT_EQ(value.find("steps")->items()[i].find("loss")->as_double(), lines[i].find("loss")->as_double());
}

TEST_F(Bench, the_products_of_a_step_are_all_matrices_the_output_layer_included) {
  // One layer of size 16 with an MLP of 64 and a tied output layer for 64 tokens.
  const Value value = object("step " + path("tiny.json") + " --steps 1 --warmup 0");
  std::set<std::string> shapes;
  for (const Value& shape : value.find("products")->find("shapes")->items()) {
    shapes.insert(
        concat(shape.find("out")->as_int(), "x", shape.find("in")->as_int(), ":", shape.find("count")->as_int()));
    EXPECT_EQ(shape.find("rows")->as_int(), 32);
  }
  EXPECT_EQ(shapes, (std::set<std::string>{"16x16:1", "16x64:1", "48x16:1", "64x16:2"}));
}

TEST_F(Bench, products_of_experts_are_those_of_the_rows_that_each_gets) {
  const std::string mixture =
      R"({"type": "gpt", "params": {"family": "qwen3_moe", "num_layers": 2, "hidden_size": 16, "num_attention_heads": 2, )"
      R"("kv_channels": 8, "vocab_size": 64, "max_position_embeddings": 16, "num_experts": 4, "num_experts_per_tok": 2, )"
      R"("moe_intermediate_size": 24}})";
  const Value value = object("step " + path("tiny.json") + " --steps 1 --warmup 0 --set 'model=" + mixture + "'");
  std::set<std::string> shapes;
  double seconds = 0;
  for (const Value& shape : value.find("products")->find("shapes")->items()) {
    const auto number = [&](const char* key) { return shape.find(key)->as_int(); };
    shapes.insert(
        concat(number("rows"), ":", number("groups"), "x", number("out"), "x", number("in"), ":", number("count")));
    seconds += shape.find("seconds")->as_double() * static_cast<double>(number("count"));
  }
  // 32 tokens with two choices each; gate and up are one matrix. Routers are matrices like others.
  for (const char* experts : {"64:4x48x16:2", "64:4x16x24:2", "32:1x64x16:1"})
    EXPECT_TRUE(shapes.contains(experts)) << experts << " of " << testing::PrintToString(shapes);
  EXPECT_DOUBLE_EQ(value.find("products")->find("seconds")->as_double(), seconds);
}

TEST_F(Bench, step_takes_a_shape_from_the_command_line) {
  const Value value =
      object("step --layers 1 --hidden 32 --heads 2 --vocab 64 --batch 2 --seq 8 --steps 1 --warmup 0 --threads 1");
  EXPECT_EQ(value.find("run")->find("hidden_size")->as_int(), 32);
  EXPECT_EQ(value.find("run")->find("seq_length")->as_int(), 8);
  EXPECT_EQ(value.find("run")->find("micro_batch_size")->as_int(), 2);
  EXPECT_EQ(value.find("machine")->find("threads")->as_int(), 1);
}

TEST_F(Bench, two_ranks_are_timed_under_launch_and_rank_0_tells) {
  const Ran ran = on_stdout("launch -n 2 --bench step " + path("tiny.json") + " --steps 2 --warmup 1 --json");
  ASSERT_EQ(ran.code, 0) << ran.output << file_bytes(path("errors.txt"));
  const Value value = parse_json(ran.output, "bench");
  EXPECT_EQ(value.find("run")->find("ranks")->as_int(), 2);
  EXPECT_EQ(value.find("steps")->items().size(), 3u);
}

// What a viewer needs: valid JSON, a process per rank, computation and communication on tracks of their own.
TEST_F(Bench, a_trace_has_the_last_steps_of_all_ranks_side_by_side) {
  const Ran ran = on_stdout("launch -n 2 --bench step " + path("tiny.json") + " --steps 4 --warmup 1 --trace " +
                            path("trace.json") + " --set train_batch_size=4");
  ASSERT_EQ(ran.code, 0) << ran.output << file_bytes(path("errors.txt"));
  expect_says(ran.output, {"trace of the last steps: " + path("trace.json"), "perfetto"});
  const Value trace = parse_json(file_bytes(path("trace.json")), "trace.json");
  std::map<int64_t, std::set<std::string>> names;
  std::map<int64_t, double> steps_us, parts_us;
  for (const Value& event : trace.find("traceEvents")->items()) {
    if (event.find("ph")->as_string() != "X") continue;
    const int64_t rank = event.find("pid")->as_int();
    const std::string name = event.find("name")->as_string(), kind = event.find("cat")->as_string();
    names[rank].insert(kind + " " + name);
    const double us = event.find("dur")->as_double();
    if (name.starts_with("step "))
      steps_us[rank] += us;
    else if (kind == "compute" && !name.starts_with("in "))
      parts_us[rank] += us;
  }
  ASSERT_EQ(names.size(), 2u);
  for (const int64_t rank : {0, 1}) {
    for (const char* name : {"compute step 3", "compute step 4", "compute step 5", "compute forward",
                             "compute backward", "compute update", "communication all_reduce", "compute in all_reduce"})
      EXPECT_TRUE(names[rank].count(name)) << rank << " " << name;
    EXPECT_FALSE(names[rank].count("compute step 2")) << "three are traced";
    EXPECT_NEAR(parts_us[rank] / steps_us[rank], 1, 1e-6) << "parts fill the steps";
  }
}

TEST_F(Bench, a_trace_that_cannot_be_made_is_refused_before_the_steps_run) {
  expect_refused("bench step " + path("tiny.json") + " --trace " + path("none/trace.json"), 8,
                 {"--trace", "none/trace.json", "cannot be created", "No such file"});
  expect_refused("bench step " + path("tiny.json") + " --trace " + path("t.json") + " --set flight_record=false", 2,
                 {"--trace needs the flight record"});
}

TEST_F(Bench, products_have_the_rate_of_each_shape_and_the_highest) {
  const Value value = object("products --shapes 64x32x16,8x8x8 --rounds 2 --threads 1");
  EXPECT_EQ(value.find("bench")->as_string(), "products");
  const Value::Array& products = value.find("products")->items();
  ASSERT_EQ(products.size(), 2u);
  double highest = 0;
  for (const Value& one : products) {
    expect_spread(one, "seconds");
    const double flops =
        2. * static_cast<double>(one.find("m")->as_int() * one.find("n")->as_int() * one.find("k")->as_int());
    EXPECT_DOUBLE_EQ(one.find("tflops")->as_double(), flops / one.find("seconds")->find("min")->as_double() / 1e12);
    highest = std::max(highest, one.find("tflops")->as_double());
  }
  EXPECT_DOUBLE_EQ(value.find("highest_tflops")->as_double(), highest);
  for (const char* wrong : {"64x32", "64x32x0", "axbxc", "1x2x3x4"})
    expect_refused(std::string("bench products --shapes ") + wrong, 2, {"--shapes wants MxNxK", wrong});
}

TEST_F(Bench, a_table_says_whether_the_machine_was_idle_and_names_every_phase) {
  const Ran ran = run("bench step " + path("tiny.json") + " --steps 1 --warmup 0");
  EXPECT_EQ(ran.code, 0) << ran.output;
  expect_says(ran.output, {"machine: ", "forward", "backward", "finish", "update", "tokens/s", "matrix products alone",
                           "limit: products", "peak memory", "loss"});
  EXPECT_TRUE(ran.output.find("idle before the benchmark") != std::string::npos ||
              ran.output.find("NOT IDLE") != std::string::npos);
}

TEST_F(Bench, every_kernel_is_measured_against_a_bound) {
  const Value value = object("kernels --rounds 1");
  std::set<std::string> names;
  for (const Value& kernel : value.find("kernels")->items()) {
    const std::string name = kernel.find("kernel")->as_string();
    names.insert(name.substr(0, name.find_first_of(" ,")));
    for (const char* key : {"seconds", "bytes", "bytes_per_s", "bound_bytes_per_s", "share"})
      EXPECT_GT(kernel.find(key)->as_double(), 0) << name << " " << key;
  }
  EXPECT_EQ(names, (std::set<std::string>{"adam", "cross_entropy", "embedding", "few_rows_product", "gelu", "gelu_tanh",
                                          "norm", "part_cross_entropy_begin", "part_cross_entropy_end", "qk", "rotary",
                                          "square_sum", "swiglu"}));
}

TEST_F(Bench, every_optimizer_and_attention_is_compared_with_libtorch) {
  const Value optimizers = object("optimizer --elements 100000 --rounds 2");
  EXPECT_EQ(optimizers.find("elements")->as_int(), 100000);
  EXPECT_GE(optimizers.find("optimizers")->items().size(), 2u);
  for (const Value& one : optimizers.find("optimizers")->items())
    for (const char* key : {"seconds", "libtorch_seconds", "ratio"}) expect_spread(one, key);
  const Value attentions = object("attention --heads 2 --seq 32 --head-size 16 --rounds 2 --documents 4");
  EXPECT_GE(attentions.find("documents")->items().size(), 2u);
  for (const Value& one : attentions.find("documents")->items())
    EXPECT_GT(one.find("ratio")->find("median")->as_double(), 0) << one.find("attention")->as_string();
  EXPECT_GE(attentions.find("attentions")->items().size(), 2u);
  for (const Value& one : attentions.find("attentions")->items())
    for (const char* key : {"forward_s", "forward_backward_s", "libtorch_forward_backward_s", "ratio"})
      expect_spread(one, key);
}

TEST_F(Bench, startup_is_a_multiple_of_loading_libtorch) {
  const Value value = object("startup --rounds 1");
  ASSERT_EQ(value.find("starts")->items().size(), 2u);
  for (const Value& one : value.find("starts")->items())
    for (const char* key : {"step_1_s", "exit_s", "load_libtorch_s", "ratio"}) expect_spread(one, key);
}

TEST_F(Bench, ranks_meet_as_threads) {
  const Value value = object("rendezvous -n 16 --rounds 2");
  ASSERT_EQ(value.find("meetings")->items().size(), 1u);
  expect_spread(value.find("meetings")->items()[0], "seconds");
}

TEST_F(Bench, wrong_words_are_told_with_what_would_be_right) {
  expect_refused("bench", 2,
                 {"something is missing",
                  "step|kernels|products|optimizer|attention|startup|rendezvous|plugins|collectives|context"});
  expect_refused("bench stpe", 2, {"bench", "\"stpe\"", "did you mean \"step\"?", "kernels", "startup"});
  expect_refused("bench step --layer 2", 2, {"--layer", "did you mean \"--layers\"?"});
  expect_refused("bench kernels --layers 2", 2,
                 {"bench kernels", "--layers", "bench step", "usage: drivetrain bench kernels"});
  expect_refused("bench kernels tiny.json", 2, {"\"tiny.json\" was not expected"});
  expect_refused("bench step --steps none", 2, {"--steps wants a whole number of at least 1", "\"none\""});
  expect_refused("bench step --dtype int8", 2, {"--dtype wants f32, bf16 or fp16", "\"int8\""});
  expect_refused("bench attention --heads 6 --groups 4", 2, {"--groups 4 does not divide --heads 6"});
  expect_refused("bench attention --seq 32 --documents 33", 2, {"--documents 33", "1 to --seq 32"});
  expect_refused("bench step nowhere.json", 2, {"nowhere.json"});
  expect_refused("bench step tiny.json --set model.num_layrs=2", 2, {"num_layrs", "did you mean \"num_layers\"?"});
  expect_refused("bench hardware --output nowhere/h.json", 2, {"there is no folder nowhere", "name a file in another"});
  expect_refused("bench hardware --output .", 2, {"--output . is a folder"});
  expect_refused("launch -n 2 tiny.json --bench kernels", 2,
                 {"--bench wants step, collectives, context, checkpoint or hardware, got \"kernels\""});
  expect_refused("launch -n 2 tiny.json --json", 2, {"--json goes with --bench step"});
  expect_refused("launch -n 2 tiny.json --bench step --plan", 2, {"--plan and --bench exclude each other"});
}

TEST_F(Bench, data_reads_the_dataset_of_a_config_alone) {
  const Value value = object("data " + path("tiny.json") + " --batches 3 --rounds 2 --first-step 7");
  EXPECT_EQ(value.find("bench")->as_string(), "data");
  EXPECT_EQ(value.find("tokens_per_batch")->as_int(), 4 * 8);
  for (const char* key : {"open_s", "first_batch_s", "read_s"}) expect_spread(value, key);
  EXPECT_GT(value.find("tokens_per_s")->as_double(), 0);
  expect_says(on_stdout("bench data " + path("tiny.json") + " --batches 3").output,
              {"to the first batch", "memory", "tokens per second"});
  for (const std::string& name : files()) EXPECT_EQ(name.find("run"), std::string::npos) << name;
}

}  // namespace
}  // namespace drivetrain::test
