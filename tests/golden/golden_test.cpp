// Losses, gradient norms, learning rates and final weights of 20 steps against curves made by PyTorch and DeepSpeed.
// Some cases run the program, through its launcher and a JSON file; in the others ranks are threads of this process,
// which start sooner and compute the same.
#include <gtest/gtest.h>

#include <ATen/ops/equal.h>

#include <cmath>
#include <map>

#include <drivetrain/error.h>
#include <drivetrain/safetensors.h>
#include <drivetrain/value.h>

#include <drivetrain/testkit/kit/host.h>
#include "golden/golden_config.h"
#include "support/run_program.h"
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

struct Case {
  const char* name;       // golden folder
  const char* reference;  // section of curve.json that is the truth for loss and norm
  const char* final;      // reference weights
  const char* decay;
  GoldenCut cut;
  const char* attention;
  bool fused_block = true;
  bool by_program = false;
};

std::string name_of(const testing::TestParamInfo<Case>& info) {
  const GoldenCut& c = info.param.cut;
  const std::string cut = c.name.empty() ? std::to_string(c.ranks) : c.name;
  return std::string(info.param.name) + "_" + cut + "_" + info.param.attention +
         (info.param.fused_block ? "" : "_own_blocks") + (info.param.by_program ? "_by_program" : "");
}

class Golden : public testing::TestWithParam<Case> {
 protected:
  std::string folder() const { return golden_folder(GetParam().name); }
  Value config() const {
    Value config = golden_config(GetParam().name, GetParam().cut, GetParam().decay);
    config.set("attention", GetParam().attention);
    if (!GetParam().fused_block) config.set("fused_block", false);
    return config;
  }
};

// Tolerances of the first step are their own where the case has them.
double tolerance_of(const Value& tolerance, const std::string& key, size_t step) {
  const Value* first = step == 0 ? tolerance.find(key + "_step_1") : nullptr;
  return (first ? first : tolerance.find(key))->as_double();
}

void expect_curve(const std::vector<Value>& metrics, const Value& reference, const Value& lr, const Value& tolerance) {
  ASSERT_EQ(metrics.size(), 20u);
  for (size_t i = 0; i < 20; ++i) {
    const double loss = reference.find("loss")->items()[i].as_double();
    const double norm = reference.find("grad_norm")->items()[i].as_double();
    const double loss_abs = tolerance_of(tolerance, "loss_abs", i),
                 norm_rel = tolerance_of(tolerance, "grad_norm_rel", i);
    const double rate = lr.items()[i].as_double();
    EXPECT_NEAR(metrics[i].find("loss")->as_double(), loss, loss_abs) << "step " << i + 1;
    EXPECT_NEAR(metrics[i].find("grad_norm")->as_double(), norm, norm_rel * norm) << "step " << i + 1;
    EXPECT_NEAR(metrics[i].find("lr")->as_double(), rate, 1e-12 * std::abs(rate)) << "step " << i + 1;
  }
}

struct Slice {
  int64_t from = 0, to = 0;
  double bound = 0;
};

// All but max(2, n/1000) elements within `abs`, none beyond `all_abs`;
// the slice (a key bias, whose exact gradient is zero) has its own bound.
void expect_weights(const std::string& name, const at::Tensor& ours, const at::Tensor& theirs, double abs,
                    double all_abs, Slice slice) {
  ASSERT_EQ(ours.sizes(), theirs.sizes()) << name;
  const float* a = ours.const_data_ptr<float>();
  const float* b = theirs.const_data_ptr<float>();
  int64_t outside = 0;
  for (int64_t i = 0; i < ours.numel(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (i >= slice.from && i < slice.to) {
      EXPECT_LE(difference, slice.bound) << name << "[" << i << "]";
      continue;
    }
    EXPECT_LE(difference, all_abs) << name << "[" << i << "]";
    outside += difference > abs;
  }
  EXPECT_LE(outside, std::max<int64_t>(2, (ours.numel() + 999) / 1000)) << name << ", bound " << abs;
}

void expect_final(const std::string& ours_path, const std::string& theirs_path, const Value& tolerance) {
  const auto ours = SafetensorsFile::open(ours_path), theirs = SafetensorsFile::open(theirs_path);
  for (const auto& member : tolerance.find("final_weights")->members()) {
    Slice slice;
    for (const Value& s : tolerance.find("final_weights_slices")->items())
      if (s.find("tensor")->as_string() == member.key)
        slice = {s.find("from")->as_int(), s.find("to")->as_int(), s.find("abs")->as_double()};
    ASSERT_TRUE(ours.contains(member.key)) << member.key;
    expect_weights(member.key, ours.tensor(member.key), theirs.tensor(member.key),
                   member.value.find("abs")->as_double(), tolerance.find("final_weights_all_abs")->as_double(), slice);
  }
}

// What `ranks` processes of the program, or else threads, wrote is below `folder`/run.
void run_ranks(int ranks, Value config, bool by_program, const TempFolder& folder) {
  if (!by_program) {
    config.set("output_dir", folder / "run");
    run_threads(config, ranks);
    return;
  }
  std::ofstream(folder / "golden.json") << config.to_json(2);
  const Ran ran = run_shell(
      concat(program(), " launch -n ", ranks, " ", folder / "golden.json", " --set output_dir=", folder / "run"));
  ASSERT_EQ(ran.code, 0) << ran.output;
}

// What the sections ask for is what ran.
void expect_given_plugins(const Value& given, const Value& plugins) {
  const Value* zero = given.find("zero_optimization");
  const bool sharded = zero && zero->find("stage")->as_int() > 0;
  const Value* named = given.find("data_parallel");
  EXPECT_TRUE(plugins.find(named     ? "data_parallel/" + named->as_string()
                           : sharded ? "data_parallel/zero"
                                     : "data_parallel/ddp"));
  for (const auto& [section, kind] : std::map<std::string, std::string>{{"tensor_parallel", "tensor_parallel"},
                                                                        {"context_parallel", "context_parallel"},
                                                                        {"pipeline", "schedule"}}) {
    if (!given.find(section)) continue;
    const std::string name = kind + "/" + given.find(section)->find("type")->as_string();
    EXPECT_TRUE(plugins.find(name)) << name;
  }
}

TEST_P(Golden, curve_and_final_weights_agree) {
  const TempFolder temporary;
  const std::string run = temporary / "run";
  ASSERT_NO_FATAL_FAILURE(run_ranks(GetParam().cut.ranks, config(), GetParam().by_program, temporary));
  const Value curve = read_json_file(folder() + "/curve.json");
  const Value& reference = *curve.find(GetParam().reference);
  const Value* lr = reference.find("lr") ? reference.find("lr") : curve.find("deepspeed")->find("lr");
  expect_curve(read_metrics(run), reference, *lr, *curve.find("tolerance"));
  expect_final(run + "/final/model.safetensors", folder() + "/" + GetParam().final, *curve.find("tolerance"));
  const Value resolved = read_json_file(run + "/resolved.json");
  const Value* plugins = resolved.find("_resolved")->find("plugins");
  EXPECT_TRUE(plugins->find(std::string("attention/") + GetParam().attention));
  EXPECT_EQ(plugins->find("strategy/fused_block") != nullptr, GetParam().fused_block);
  expect_given_plugins(config(), *plugins);
}

GoldenCut data_parallel(int processes) { return {.ranks = processes, .data_ranks = processes}; }

std::string tensor(const char* more = "") {
  return concat(R"("tensor_parallel": {"type": "megatron", "params": {"size": 2)", more, "}}");
}
std::string context(const char* type) {
  return concat(R"("context_parallel": {"type": ")", type, R"(", "params": {"size": 2}})");
}
std::string pipeline(const char* type, const char* more = "") {
  return concat(R"("pipeline": {"type": ")", type, R"(", "params": {"stages": 2)", more, "}}");
}
std::string all_of(const std::string& a, const std::string& b = "") {
  return concat("{", a, b.empty() ? "" : ", ", b, "}");
}

const char kSequenceParallel[] = R"(, "sequence_parallel": true)";
const char kStage3[] =
    R"("zero_optimization": {"stage": 3, "reduce_bucket_size": 50000, "stage3_param_persistence_threshold": 100})";

std::vector<GoldenCut> cuts() {
  return {{"tp2", all_of(tensor()), 2},
          {"tp2_sequence_parallel", all_of(tensor(kSequenceParallel)), 2},
          {"pp2_gpipe", all_of(pipeline("gpipe")), 2, 1, 4},
          {"pp2_1f1b", all_of(pipeline("one_f_one_b")), 2, 1, 4},
          {"pp2_interleaved", all_of(pipeline("interleaved", R"(, "chunks": 2)")), 2, 1, 4},
          {"pp2_zero_bubble", all_of(pipeline("zero_bubble_h1")), 2, 1, 4},
          {"cp2_ring", all_of(context("ring")), 2},
          {"cp2_ulysses", all_of(context("ulysses")), 2},
          {"tp2_pp2", all_of(tensor(), pipeline("one_f_one_b")), 4, 1, 2},
          {"tp2_sequence_parallel_pp2", all_of(tensor(kSequenceParallel), pipeline("zero_bubble_h1")), 4, 1, 4},
          {"tp2_dp2_zero3", all_of(tensor(), kStage3), 4, 2},
          {"pp2_dp2_zero3", all_of(pipeline("one_f_one_b"), kStage3), 4, 2, 2}};
}

// DeepSpeed's own ZeRO-3 run, cut further.
std::vector<GoldenCut> cuts_of_stage_3() {
  return {{"tp2", all_of(tensor()), 2},
          {"tp2_sequence_parallel_dp2", all_of(tensor(kSequenceParallel)), 4, 2},
          {"pp2_dp2", all_of(pipeline("one_f_one_b")), 4, 2},
          {"cp2_dp2", all_of(context("ring")), 4, 2}};
}

std::vector<Case> cases() {
  const char *truth = "final_float64_rounded.safetensors", *deepspeeds = "final.safetensors";
  std::vector<Case> list;
  for (const char* attention : {"standard", "flash"}) {
    for (const int ranks : {1, 2, 4}) {
      list.push_back({"gpt2_tiny", "float64", truth, "matrices", data_parallel(ranks), attention});
      list.back().by_program = attention == std::string("flash");
      list.push_back({"llama_tiny", "float64", truth, "matrices", data_parallel(ranks), attention});
    }
  }
  for (const char* name : {"gpt2_tiny", "llama_tiny"})
    list.push_back({name, "float64", truth, "matrices", data_parallel(2), "flash", false});
  for (const char* name :
       {"deepspeed_gpt2_zero0", "deepspeed_gpt2_zero1", "deepspeed_gpt2_zero2", "deepspeed_gpt2_zero3"})
    for (const int ranks : {1, 2, 4}) {
      list.push_back({name, "single_process_float64", deepspeeds, "all", data_parallel(ranks), "flash"});
      list.back().by_program = ranks == 4 && name == std::string("deepspeed_gpt2_zero3");
    }
  for (const char* name : {"gpt2_tiny", "llama_tiny"})
    for (const GoldenCut& cut : cuts()) {
      list.push_back({name, "float64", truth, "matrices", cut, "flash"});
      list.back().by_program = cut.ranks == 4 && name == std::string("gpt2_tiny");
      if (cut.ranks == 4) list.push_back({name, "float64", truth, "matrices", cut, "standard", false});
    }
  for (const GoldenCut& cut : cuts_of_stage_3())
    list.push_back({"deepspeed_gpt2_zero3", "single_process_float64", deepspeeds, "all", cut, "flash"});
  return list;
}

INSTANTIATE_TEST_SUITE_P(Curves, Golden, testing::ValuesIn(cases()), name_of);

// Masters of ours are taken from the float32 file, so the truth is the float64 run;
// DeepSpeed, whose masters start from weights rounded to bf16, has a tolerance of its own. There are no final weights.
class GoldenBf16 : public testing::TestWithParam<std::tuple<const char*, int>> {};

TEST_P(GoldenBf16, curve_agrees) {
  const auto& [name, processes] = GetParam();
  const TempFolder temporary;
  const bool by_program = processes == 2;
  ASSERT_NO_FATAL_FAILURE(run_ranks(processes, golden_config(name, processes, "all"), by_program, temporary));
  const Value curve = read_json_file(golden_folder(name) + "/curve.json");
  const Value& tolerance = *curve.find("tolerance")->find("masters_from_float32_weights");
  expect_curve(read_metrics(temporary / "run"), *curve.find(tolerance.find("compare_with")->as_string()),
               *curve.find("deepspeed")->find("lr"), tolerance);
}

INSTANTIATE_TEST_SUITE_P(
    Curves, GoldenBf16,
    testing::Combine(testing::Values("deepspeed_bf16_zero1", "deepspeed_bf16_zero1_fp32_accumulation"),
                     testing::Values(1, 2, 4)),
    [](const auto& info) { return std::get<0>(info.param) + ("_" + std::to_string(std::get<1>(info.param))); });

// PEFT's adapters: the start is its folder, and so is what the run writes.
struct Adapted {
  const char* name;
  GoldenCut cut;
  bool by_program = false;
};

void PrintTo(const Adapted& adapted, std::ostream* out) { *out << adapted.name << " " << adapted.cut.name; }

class GoldenAdapters : public testing::TestWithParam<Adapted> {};

Value adapted_config(const Adapted& adapted, const std::string& more = "{}") {
  Value config = golden_config(adapted.name, adapted.cut, "matrices");
  Value lora = parse_json(more, "lora");
  lora.set("from", golden_folder(adapted.name) + "/adapter");
  config.set("lora", lora);
  return config;
}

TEST_P(GoldenAdapters, curve_and_final_adapter_agree) {
  const TempFolder temporary;
  const std::string run = temporary / "run", folder = golden_folder(GetParam().name);
  ASSERT_NO_FATAL_FAILURE(
      run_ranks(GetParam().cut.ranks, adapted_config(GetParam()), GetParam().by_program, temporary));
  const Value curve = read_json_file(folder + "/curve.json");
  const Value& reference = *curve.find("float64");
  expect_curve(read_metrics(run), reference, *reference.find("lr"), *curve.find("tolerance"));
  expect_final(run + "/final/adapter_model.safetensors", folder + "/final_float64_rounded.safetensors",
               *curve.find("tolerance"));
  const Value plugins = *read_json_file(run + "/resolved.json").find("_resolved")->find("plugins");
  EXPECT_TRUE(plugins.find("strategy/lora"));
  expect_given_plugins(adapted_config(GetParam()), plugins);
  const Value written = read_json_file(run + "/final/adapter_config.json"),
              given = read_json_file(folder + "/adapter/adapter_config.json");
  for (const Value::Member& member : given.members()) {
    const Value* ours = written.find(member.key);
    ASSERT_TRUE(ours) << member.key;
    if (member.value.is_number())
      EXPECT_EQ(ours->as_double(), member.value.as_double()) << member.key;
    else
      EXPECT_EQ(ours->to_json(), member.value.to_json()) << member.key;
  }
}

std::vector<Adapted> adapted_cases() {
  const auto stage = [](int number) {
    return all_of(concat(R"("zero_optimization": {"stage": )", number, R"(, "reduce_bucket_size": 500)",
                         number == 3 ? R"(, "stage3_param_persistence_threshold": 100})" : "}"));
  };
  std::vector<Adapted> list;
  for (const char* name : {"lora_gpt2", "lora_llama", "lora_qwen2"}) {
    list.push_back({name, {"1"}, name == std::string("lora_gpt2")});
    list.push_back({name, {"own_blocks", R"({"fused_block": false})"}});
    list.push_back({name, {"recompute", R"({"activation_checkpointing": "full"})"}});
    list.push_back({name, {"ddp2", "{}", 2, 2}});
    for (const int number : {1, 2, 3}) list.push_back({name, {concat("zero", number), stage(number), 2, 2}});
    list.push_back({name, {"fsdp2", R"({"data_parallel": "fsdp"})", 2, 2}});
    for (const GoldenCut& cut : cuts()) list.push_back({name, cut});
  }
  return list;
}

INSTANTIATE_TEST_SUITE_P(Curves, GoldenAdapters, testing::ValuesIn(adapted_cases()), [](const auto& info) {
  return concat(info.param.name, "_", info.param.cut.name, info.param.by_program ? "_by_program" : "");
});

TEST(GoldenAdapters, one_of_another_base_is_refused_with_the_shapes) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("num_layers": 2, "hidden_size": 32)", "is [4, 64], and this model wants [4, 32]"},
      {R"("num_layers": 3, "hidden_size": 64)", "has no tensor base_model.model.transformer.h.2.attn.c_attn.lora_A"},
      {R"("num_layers": 1, "hidden_size": 64)", "belongs to nothing in this model"}};
  for (const auto& [sizes, said] : cases) {
    const TempFolder temporary;
    Value config = adapted_config({"lora_gpt2", {}});
    config.set("model", parse_json(concat(R"({"type": "gpt", "params": {"num_attention_heads": 4, "vocab_size": 256,
                                              "max_position_embeddings": 64, )",
                                          sizes, "}}"),
                                   "model"));
    const std::string text = error_of([&] { run_ranks(1, config, false, temporary); });
    EXPECT_NE(text.find(said), std::string::npos) << text;
  }
}

// An output layer of its own included, which tensor parallelism makes itself.
TEST(GoldenAdapters, what_is_frozen_stays_as_it_was) {
  const auto base = SafetensorsFile::open(golden_folder("llama_tiny") + "/model/model.safetensors");
  for (const GoldenCut& cut : {GoldenCut{"1"}, GoldenCut{"tp2", all_of(tensor(kSequenceParallel)), 2},
                               GoldenCut{"zero3", all_of(kStage3), 2, 2}}) {
    const TempFolder temporary;
    Value config = golden_config("llama_tiny", cut, "matrices");
    config.set("train_steps", 3);
    config.set("lora", parse_json(R"({"r": 4, "target_modules": ["q_proj"], "save": "merged"})", "lora"));
    run_ranks(cut.ranks, config, false, temporary);
    const auto merged = SafetensorsFile::open(temporary / "run/final/model.safetensors");
    for (const std::string& name : base.names()) {
      const bool adapted = name.find("q_proj") != std::string::npos;
      EXPECT_NE(at::equal(merged.tensor(name), base.tensor(name)), adapted) << cut.name << " " << name;
    }
  }
}

// Products of the base in 8 bits, adapters beside them in more: the first loss is that of the base, to the bit on one
// rank, and the curve is PEFT's but for the rounding.
TEST(GoldenAdapters, learn_beside_products_in_8_bits) {
  const std::string fp8 = R"("fp8": true)";
  const auto losses = [](const Value& config, int ranks) {
    const TempFolder temporary;
    run_ranks(ranks, config, false, temporary);
    std::vector<double> list;
    for (const Value& line : read_metrics(temporary / "run")) list.push_back(line.find("loss")->as_double());
    return list;
  };
  const double base = losses(golden_config("gpt2_tiny", {"1", all_of(fp8)}, "matrices"), 1).at(0);
  const Value exact = *read_json_file(golden_folder("lora_gpt2") + "/curve.json").find("float64")->find("loss");
  EXPECT_GT(std::abs(base - exact.items()[0].as_double()), 1e-4) << "products are not in 8 bits";
  for (const GoldenCut& cut : {GoldenCut{"1", all_of(fp8)}, GoldenCut{"zero3", all_of(fp8, kStage3), 2, 2}}) {
    const std::vector<double> found = losses(adapted_config({"lora_gpt2", cut}), cut.ranks);
    if (cut.ranks == 1) EXPECT_EQ(found.at(0), base);
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], exact.items()[i].as_double(), 0.03) << cut.name;
  }
}

// The first loss of each run, of a model with adapters beside its weights and of the model that they were added to.
TEST(GoldenAdapters, the_merged_folder_is_the_model_with_its_adapters) {
  for (const char* name : {"lora_gpt2", "lora_llama", "lora_qwen2"}) {
    const TempFolder temporary;
    run_ranks(1, adapted_config({name, {}}, R"({"save": "both"})"), false, temporary);
    const std::string final = temporary / "run/final";
    const auto first_loss = [&](Value config, const std::string& run) {
      config.set("train_steps", 1);
      config.set("output_dir", temporary / run);
      run_threads(config, 1);
      return read_metrics(temporary / run).at(0).find("loss")->as_double();
    };
    Value beside = adapted_config({name, {}}), merged = golden_config(name, 1, "matrices");
    beside.set("lora", Value::Object{{"from", final + "/adapter"}});
    merged.set("model", Value::Object{{"type", "gpt"}, {"params", Value::Object{{"from", final}}}});
    const double loss = first_loss(beside, "beside");
    EXPECT_NEAR(first_loss(merged, "merged"), loss, 4e-6) << name;
    EXPECT_GT(std::abs(first_loss(golden_config(name, 1, "matrices"), "base") - loss), 1e-3) << name;
  }
}

}  // namespace
}  // namespace drivetrain::test
