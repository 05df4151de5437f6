// `drivetrain plan`: what it prints of a run, that its search finds nothing better than the best, and what it refuses.
#include <map>

#include "program/program_fixture.h"

namespace drivetrain::test {
namespace {

class PlanCommand : public ProgramTest {
 protected:
  // A machine of slow processes on which everything takes its time.
  static constexpr const char* kMachine = R"({"name": "slow", "device": "cpu", "peak_tflops": {"float32": 0.1},
  "products": {"share": 0.5, "half_rows": 8, "half_width": 8}, "attention": {"share": 0.1},
  "memory": {"gb_per_s": 10, "share": 0.8, "gib": 1},
  "host_link": {"gb_per_s": 2, "share": 0.5, "latency_us": 10}, "network": {"gb_per_s": 0.1, "share": 0.8, "latency_us": 50},
  "pcie": {"gb_per_s": 10, "share": 0.8, "latency_us": 10}, "hosts": 4, "ranks_per_host": 2,
  "overheads": {"unit_us": 20, "context_gib": 0.1}})";

  Value json_of(const std::string& words) {
    const Ran ran = run(words);
    EXPECT_EQ(ran.code, 0) << ran.output;
    return ran.code == 0 ? parse_json(ran.output, "plan") : Value::object();
  }
  std::string planned(const std::string& words = "") const {
    return "plan " + path("tiny.json") + " --hardware " + path("slow.json") + " " + words;
  }
  void SetUp() override { write("slow.json", kMachine); }
};

TEST_F(PlanCommand, says_memory_verdict_and_time_with_its_parts) {
  const Ran ran = run(planned("-n 2"));
  EXPECT_EQ(ran.code, 0) << ran.output;
  expect_says(ran.output, {"4592 parameters, 2 ranks", "memory of the fullest rank, GiB", "parameters", "context",
                           "fits", "a step on slow takes", "matrix products", "optimizer"});
}

TEST_F(PlanCommand, json_has_parts_that_sum_up) {
  const Value plan = json_of(planned("-n 4 --json"));
  const Value& time = *plan.find("forecast")->find("time");
  double sum = 0;
  for (const Value& part : time.find("parts")->items()) sum += part.find("seconds")->as_double();
  EXPECT_NEAR(sum, time.find("seconds")->as_double(), 1e-9);
  EXPECT_TRUE(plan.find("forecast")->find("fits")->as_bool());
  EXPECT_EQ(plan.find("run")->find("world_size")->as_int(), 4);
}

// Of a run on GPUs, which need not be here.
TEST_F(PlanCommand, what_is_offloaded_needs_no_room_on_the_device_and_takes_its_time) {
  write("gpu.json", R"({"model": {"type": "gpt", "params": {"num_layers": 4, "hidden_size": 512,
    "num_attention_heads": 8, "vocab_size": 4096, "max_position_embeddings": 512}}, "train_batch_size": 4,
    "train_steps": 1, "dataset": {"type": "synthetic", "params": {"seq_length": 512}}, "device": "cuda",
    "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}})");
  const auto forecast = [&](const std::string& more) {
    return json_of("plan " + path("gpu.json") + " --hardware h100 -n 2 --json " + more);
  };
  const auto gib = [](const Value& plan, const char* what) {
    return plan.find("forecast")->find("memory_gib")->find(what)->as_double() * 1024 * 1024 * 1024;
  };
  const auto seconds = [](const Value& plan, const std::string& part) {
    double sum = 0;
    for (const Value& one : plan.find("forecast")->find("time")->find("parts")->items())
      if (one.find("what")->as_string().starts_with(part))
        sum += one.find("seconds")->as_double() + one.find("hidden_seconds")->as_double();
    return sum;
  };
  const Value plain = forecast(""), away = forecast("--set zero_optimization.offload_optimizer.device=cpu"),
              inputs = forecast("--set activation_checkpointing.type=offload");
  const double updated = plain.find("memory")->find("updated_elements")->as_double();
  EXPECT_EQ(gib(plain, "on_host"), 0);
  EXPECT_NEAR(gib(plain, "optimizer"), 12 * updated, 0.012 * updated) << "masters have gaps";
  EXPECT_EQ(gib(away, "optimizer"), 0);
  EXPECT_NEAR(gib(plain, "together") - gib(away, "together"), gib(plain, "optimizer"), 1);
  EXPECT_NEAR(gib(away, "on_host"), (12 + 4 + 2) * updated, 0.01 * updated) << "state, gradients, what is sent";
  EXPECT_EQ(seconds(plain, "copies: "), 0);
  EXPECT_NEAR(seconds(away, "copies: "), (4 + 2) * updated / (64e9 * 0.8), 1e-7);
  EXPECT_GT(seconds(away, "optimizer"), 10 * seconds(plain, "optimizer"));
  const double blocks = 4.0 * 2 * 512 * 512 * 2;
  EXPECT_NEAR(gib(inputs, "on_host"), blocks, 1);
  EXPECT_NEAR(seconds(inputs, "copies: "), 2 * blocks / (64e9 * 0.8), 1e-7);
}

// By what its plugin says of its memory, and by what kernels of heads compute.
TEST_F(PlanCommand, attention_that_keeps_scores_and_heads_that_kernels_pad_take_longer) {
  write("gpu.json", R"({"model": {"type": "gpt", "params": {"num_layers": 2, "hidden_size": 768, "kv_channels": 96,
    "num_attention_heads": 8, "vocab_size": 4096, "max_position_embeddings": 8192}}, "train_batch_size": 2,
    "train_steps": 1, "dataset": {"type": "synthetic", "params": {"seq_length": 2048}}, "device": "cuda",
    "bf16": {"enabled": true}, "save_final": false})");
  const auto attention = [&](const std::string& more) {
    const Value plan = json_of("plan " + path("gpu.json") + " --hardware h100 --json --set " + more);
    for (const Value& one : plan.find("forecast")->find("time")->find("parts")->items())
      if (one.find("what")->as_string() == "attention") return one.find("seconds")->as_double();
    return 0.0;
  };
  const double flash = attention("attention=flash"), standard = attention("attention=standard");
  const double pairs = 2.0 * 2 * 8 * 2048 * 2048 * 4;  // bytes of all scores, once, in float32
  EXPECT_GT(standard - flash, 4 * pairs / 3350e9) << "written and read, forward and backward";
  EXPECT_LT(standard - flash, 16 * pairs / 3350e9);
  const std::string longer = "dataset.params.seq_length=4096 --set attention=";
  EXPECT_NEAR((attention(longer + "standard") - attention(longer + "flash")) / (standard - flash), 4, 1e-3);
  EXPECT_NEAR(attention("model.params.kv_channels=80 --set attention=flash"), flash, 1e-9 * flash)
      << "80 is padded to 96";
}

// Hybrid sharding: over the slow links goes a rank's part alone, in the type that sums are sent in.
TEST_F(PlanCommand, replicas_sum_their_parts_in_the_type_that_is_sent) {
  write("gpu.json", R"({"model": {"type": "gpt", "params": {"num_layers": 2, "hidden_size": 256,
    "num_attention_heads": 4, "vocab_size": 1024, "max_position_embeddings": 128}}, "train_batch_size": 16,
    "train_steps": 1, "dataset": {"type": "synthetic", "params": {"seq_length": 128}}, "device": "cuda",
    "bf16": {"enabled": true}, "zero_optimization": {"stage": 1, "group_size": 8}})");
  const auto sums = [&](const std::string& more) {
    const Value plan = json_of("plan " + path("gpu.json") + " --hardware h100 -n 16 --json " + more);
    std::map<std::string, double> bytes;
    for (const Value& part : plan.find("traffic")->find("parts")->items())
      if (part.find("what")->as_string().starts_with("gradients summed"))
        bytes[part.find("axis")->as_string()] += part.find("bytes")->as_double();
    bytes["parameters"] = plan.find("model")->find("parameters")->as_double();
    return bytes;
  };
  std::map<std::string, double> wide = sums(""), narrow = sums("--set communication_data_type=bf16");
  EXPECT_NEAR(wide["dp"], 4 * wide["parameters"] * 7 / 8, 64) << "cut over the 8 of a host, in float32";
  EXPECT_NEAR(wide["replica"], 4 * wide["parameters"] / 8, 64) << "an eighth, summed over two hosts";
  EXPECT_NEAR(narrow["dp"], wide["dp"] / 2, 64);
  EXPECT_NEAR(narrow["replica"], wide["replica"] / 2, 64);
}

TEST_F(PlanCommand, what_an_optimizer_multiplies_and_sends_takes_its_time) {
  write("gpu.json", R"({"model": {"type": "gpt", "params": {"num_layers": 4, "hidden_size": 1024,
    "num_attention_heads": 8, "vocab_size": 4096, "max_position_embeddings": 512}}, "train_batch_size": 8,
    "train_steps": 1, "dataset": {"type": "synthetic", "params": {"seq_length": 512}}, "device": "cuda",
    "bf16": {"enabled": true}, "zero_optimization": {"stage": 1}})");
  const auto forecast = [&](const std::string& optimizer, int ranks) {
    const Value plan = json_of(
        concat("plan ", path("gpu.json"), " --hardware h100 --json -n ", ranks, " --set optimizer.type=", optimizer));
    std::map<std::string, double> seconds;
    for (const Value& one : plan.find("forecast")->find("time")->find("parts")->items())
      seconds[one.find("what")->as_string()] =
          one.find("seconds")->as_double() + one.find("hidden_seconds")->as_double();
    const Value& stage = plan.find("memory")->find("stages")->items().at(0);
    for (const Value& one : stage.find("update")->find("products")->items())
      seconds["operations"] += 2 * one.find("rows")->as_double() * one.find("out")->as_double() *
                               one.find("in")->as_double() * one.find("count")->as_double();
    return seconds;
  };
  std::map<std::string, double> adamw = forecast("AdamW", 4), alone = forecast("Muon", 1), muon = forecast("Muon", 4);
  // Of a block four of h x h, each 5 (4 + 2) h^3 operations, and two of h x 4 h by the gram form: 8 x 4 + 28.
  const double cube = 1024.0 * 1024 * 1024;
  EXPECT_DOUBLE_EQ(alone["operations"], 4 * (4 * 30 + 2 * 60) * cube);
  EXPECT_DOUBLE_EQ(muon["operations"], alone["operations"] / 4);
  EXPECT_EQ(adamw["operations"], 0);
  EXPECT_GT(muon["optimizer"], muon["operations"] / 989e12);
  EXPECT_LT(muon["optimizer"] - adamw["optimizer"], 8 * muon["operations"] / 989e12) << "the products are small";
  const double sent = 4 * 12 * 1024.0 * 1024 * 2 * 3 / 16;  // a quarter to another, of each quarter, in bfloat16
  for (const char* what : {"dp: parts of matrices, to owners", "dp: results of owners"}) {
    EXPECT_EQ(adamw.count(what) + alone.count(what), 0u) << what;
    EXPECT_GT(muon[what], sent / 450e9) << what;
    EXPECT_LT(muon[what], 3 * sent / 450e9) << what;
  }
}

// Matrices of 25 million elements in rounds of 16.8 at most; activations of 16 positions are small beside them.
TEST_F(PlanCommand, rounds_of_matrices_take_the_memory_that_is_planned) {
  write("wide.json", R"({"model": {"type": "gpt", "params": {"num_layers": 2, "hidden_size": 1024,
    "num_attention_heads": 4, "vocab_size": 64, "max_position_embeddings": 16}}, "train_batch_size": 2, "threads": 1,
    "train_steps": 1, "dataset": {"type": "synthetic", "params": {"seq_length": 8}}, "checkpoint_policy": false,
    "save_final": false, "output_dir": "wide", "optimizer": {"type": "Muon", "params": {"ns_steps": 1}}})");
  for (const char* how : {"-n 1", "-n 2", "-n 2 --set zero_optimization.stage=1"}) {
    SCOPED_TRACE(how);
    const Ran ran = run(concat("launch ", path("wide.json"), " ", how));
    ASSERT_EQ(ran.code, 0) << ran.output;
    const Value report = read_json_file(path("wide/memory.json"));
    for (const Value& rank : report.find("ranks")->items()) {
      const double measured = rank.find("buffers")->as_double();
      double planned = 0;
      for (const char* what : {"buffers", "activations", "working"})
        planned += rank.find("planned")->find(what)->as_double();
      EXPECT_GT(planned, 25e6 * 2 / 2) << "half of all matrices in bfloat16";
      EXPECT_NEAR(planned, measured, 0.1 * measured);
    }
    std::filesystem::remove_all(path("wide"));
  }
}

// Phi-3 fuses q, k and v, and the halves of the MLP: an adapter for each, which nobody knows before the model is built.
TEST_F(PlanCommand, parameters_are_those_that_are_built) {
  const std::string phi =
      tiny_with("\"num_layers\": 1,", "\"family\": \"phi3\", \"ffn_hidden_size\": 32, \"num_layers\": 2,");
  const auto parameters = [&](const std::string& more) {
    const Value plan = json_of(concat("plan ", phi, " --hardware ", path("slow.json"), " --json ", more));
    const double told = plan.find("model")->find("parameters")->as_double();
    double built = 0;
    for (const Value& piece : plan.find("placement")->items()) built += piece.find("parameters")->as_double();
    EXPECT_EQ(told, built) << more;
    return told;
  };
  const double adapters = parameters("--set lora.r=4 --set lora.targets=all-linear") - parameters("");
  EXPECT_EQ(adapters, 2 * 4 * ((48 + 16) + (16 + 16) + (64 + 16) + (16 + 32)));
}

TEST_F(PlanCommand, what_the_file_says_without_effect_is_told) {
  const std::string off = " --set zero_optimization.stage=0 --set zero_optimization.offload_optimizer.device=cpu";
  const auto expect_told = [](const std::string& text) {
    expect_says(text, {"offload_optimizer", "no effect at stage 0"});
  };
  expect_told(run("plan " + path("tiny.json") + off).output);
  expect_told(run(planned(off)).output);
  expect_told(run(planned("--search -n 2" + off)).output);
  expect_told(json_of(planned("--json" + off)).find("notes")->to_json());
}

// The kernels of bfloat16 have a scratch area for each thread. What plans has other threads than the ranks.
TEST_F(PlanCommand, counts_as_many_threads_as_a_rank_will_have) {
  if (file_bytes("/proc/cpuinfo").find("avx512_bf16") == std::string::npos) return;  // no kernels of our own here
  write("wide.json",
        R"({"model": {"type": "gpt", "params": {"num_layers": 1, "hidden_size": 128, "num_attention_heads": 16,
    "vocab_size": 64, "max_position_embeddings": 16384}}, "train_batch_size": 1, "train_steps": 1,
    "dataset": {"type": "synthetic", "params": {"seq_length": 16384}}, "bf16": {"enabled": true}})");
  const auto working = [&](const std::string& command, const std::string& more) {
    const Value plan = json_of(command + " --json --set threads=" + more);
    return plan.find("memory")->find("working")->find("bytes")->as_double();
  };
  const std::string plan = "plan " + path("wide.json"), train = "train " + path("wide.json") + " --plan";
  EXPECT_GT(working(plan, "16"), 1.5 * working(plan, "1"));
  EXPECT_EQ(working(train, "16"), working(plan, "16"));
}

TEST_F(PlanCommand, without_a_machine_it_says_that_times_are_not_known) {
  expect_says(run("plan " + path("tiny.json")).output, {"memory per rank", "no --hardware"});
}

TEST_F(PlanCommand, a_machine_without_room_is_told_as_such) {
  write("slow.json", std::string(kMachine).replace(std::string(kMachine).find("\"gib\": 1"), 8, "\"gib\": 0.01"));
  expect_says(run(planned()).output, {"DOES NOT FIT"});
  expect_says(run(planned("--search")).output, {"0 fit", "nothing fits; nearest is", "more ranks"});
}

TEST_F(PlanCommand, no_candidate_of_a_search_beats_its_best_and_each_is_a_plan_of_its_own) {
  write("space.json", R"({"factors": [
    {"name": "tp", "section": "tensor_parallel", "option": "size", "up_to": "ranks_per_host", "off": 1},
    {"name": "zero", "section": "zero_optimization", "option": "stage", "levels": [0, 1, 3]},
    {"name": "recompute", "section": "activation_checkpointing", "levels": ["none", "full"]},
    {"name": "micro_batch", "section": "train_micro_batch_size_per_gpu", "levels": [1, 2, 3]}], "cut_ranks": ["tp"]})");
  const Value result = json_of(planned("-n 2 --search --json --space " + path("space.json")));
  ASSERT_GT(result.find("fits")->items().size(), 4u);
  EXPECT_GT(result.find("refused")->as_int(), 0) << "3 does not divide the batch";
  const Value& best = result.find("fits")->items().front();
  for (const Value& one : result.find("fits")->items()) {
    EXPECT_GE(one.find("seconds")->as_double(), best.find("seconds")->as_double());
    EXPECT_EQ(one.find("why_slower") == nullptr, &one == &best);
  }
  // The best, planned alone, is the same.
  const std::string tp = best.find("tp")->as_string(), zero = best.find("zero")->as_string();
  const Value alone = json_of(planned("-n 2 --json --set zero_optimization.stage=" + zero +
                                      " --set activation_checkpointing=" + best.find("recompute")->as_string() +
                                      " --set train_micro_batch_size_per_gpu=" + best.find("micro_batch")->as_string() +
                                      (tp == "1" ? "" : " --set tensor_parallel.size=" + tp)));
  EXPECT_DOUBLE_EQ(alone.find("forecast")->find("time")->find("seconds")->as_double(),
                   best.find("seconds")->as_double());
}

TEST_F(PlanCommand, of_a_mixture_it_says_active_parameters_and_its_search_splits_the_experts) {
  write("mixture.json", R"({"model": {"type": "gpt", "params": {"num_layers": 1, "hidden_size": 16,
    "num_attention_heads": 2, "vocab_size": 32, "max_position_embeddings": 16, "num_experts": 6,
    "num_experts_per_tok": 2, "moe_intermediate_size": 24}}, "train_batch_size": 8, "train_steps": 1, "save_final": false,
    "expert_parallel": {"enabled": true, "autoep_size": 2}, "dataset": {"type": "synthetic", "params": {"seq_length": 16}}})");
  const std::string command = "plan " + path("mixture.json") + " --hardware " + path("slow.json") + " -n 4 ";
  const Value model = *json_of(command + "--json").find("model");
  const int64_t unused = model.find("parameters")->as_int() - model.find("parameters_active")->as_int();
  EXPECT_EQ(unused, 4 * 2 * 16 * 24) << "a token passes 2 of 6 experts, of two matrices each";
  expect_says(run(command).output, {concat(model.find("parameters_active")->as_int(), " active in a token), 4 ranks")});
  const Value result = json_of(command + "--search --json");
  std::set<std::string> sizes;
  for (const Value& one : result.find("fits")->items()) sizes.insert(one.find("ep")->as_string());
  EXPECT_EQ(sizes, (std::set<std::string>{"1", "2"})) << "4 does not divide 6 experts";
}

TEST_F(PlanCommand, tables_need_no_config_and_print_errors_and_assumptions) {
  expect_says(
      run("plan --table all").output,
      {"internevo_parallel_tgs", "TGS of 16 rows", "held back from every fit, of 16 rows", "assumed:", "xtuner_speed",
       "constants, and where each is from", "what the form does not hold within 5 %", "held back"});
  const Value table = json_of("plan --table internevo_gpu_memory --json");
  EXPECT_EQ(table.find("rows")->items().size(), 16u);
}

TEST_F(PlanCommand, what_it_cannot_do_is_refused_with_a_remedy) {
  expect_refused("plan " + path("tiny.json") + " --search", 2, {"--hardware"});
  expect_refused("plan " + path("tiny.json") + " --hardware h10", 2, {"no hardware file", "h100"});
  expect_refused("plan " + path("tiny.json") + " --hardware h100", 2, {"device \"cuda\"", "\"cpu\""});
  expect_refused("plan " + path("tiny.json") + " --table all", 2, {"a config or --table"});
  expect_refused("plan --table nothing", 2, {"no table nothing", "known here"});
  expect_refused(planned("-n 16 --set train_batch_size=16"), 2, {"16 ranks", "4 hosts of 2"});
  write("slow.json", R"({"name": "slow", "device": "cpu"})");
  expect_refused(planned(), 2, {"slow.json", "peak_tflops is missing", "bench hardware"});
}

}  // namespace
}  // namespace drivetrain::test
