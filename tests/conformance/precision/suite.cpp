#include <drivetrain/testkit/precision/suite.h>

#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <map>

#include <drivetrain/error.h>
#include <drivetrain/mesh.h>
#include <drivetrain/precision.h>
#include <drivetrain/safetensors.h>
#include <drivetrain/toolkit/layers/linear.h>
#include <drivetrain/toolkit/ops/ops.h>
#include <drivetrain/toolkit/sharding/flat_unit.h>

#include <drivetrain/testkit/kit/decorators.h>
#include <drivetrain/testkit/kit/equal_tensors.h>
#include <drivetrain/testkit/kit/host.h>
#include <drivetrain/testkit/kit/stop.h>

namespace drivetrain::test {

Value precision_config(const TempFolder& folder, const std::string& name, const std::string& more) {
  Value value = parse_json(R"({
    "train_steps": 12, "seed": 7, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "monitors": "jsonl",
    "model": {"type": "gpt", "params": {"num_layers": 2, "hidden_size": 48, "num_attention_heads": 4, "vocab_size": 96,
              "max_position_embeddings": 32}},
    "dataset": {"type": "synthetic", "params": {"seq_length": 32}},
    "optimizer": {"type": "AdamW", "params": {"lr": 3e-3, "weight_decay": 0.1}}})",
                           "test");
  const Value further = parse_json("{" + more + "}", "test");
  for (const Value::Member& m : further.members()) value.set(m.key, m.value);
  value.set("output_dir", folder.path(name));
  return value;
}

double figure(const TrainedRun& run, size_t step, const char* name) {
  return run.metrics.at(step).find(name)->as_double();
}

static std::string both(const std::string& a, const std::string& b) {
  return a.empty() || b.empty() ? a + b : a + ", " + b;
}

void expect_same_curve(const TrainedRun& ours, const TrainedRun& float32, double loss_rel, double norm_rel) {
  ASSERT_EQ(ours.metrics.size(), float32.metrics.size());
  for (size_t i = 0; i < float32.metrics.size(); ++i) {
    const double loss = figure(float32, i, "loss"), norm = figure(float32, i, "grad_norm");
    EXPECT_NEAR(figure(ours, i, "loss"), loss, loss_rel * loss) << "step " << i + 1;
    EXPECT_NEAR(figure(ours, i, "grad_norm"), norm, norm_rel * norm) << "step " << i + 1;
  }
}

namespace {

constexpr size_t kPrecisionSteps = 12;

// --- what is added up in which type

FlatUnit flat_unit(const std::shared_ptr<Param>& param, const Dtypes& dtypes) {
  static const Mesh mesh({}, 0, 1, nullptr);
  FlatOptions options;
  options.dtypes = dtypes;
  return FlatUnit({param}, mesh, options);
}

// Updates of 1/32 of the step above 1 in the parameters' type: each counts, and the parameter is the nearest number.
void check_masters_lose_nothing(const PrecisionCase& c) {
  const auto param = std::make_shared<Param>("w", Layout::whole({4}), InitRule::ones());
  const FlatUnit flat = flat_unit(param, c.dtypes);
  const Trainable t = flat.trainables().at(0);
  ASSERT_EQ(t.value.scalar_type(), at::kFloat);
  ASSERT_EQ(param->tensor.scalar_type(), c.dtypes.param);
  const double step = c.dtypes.param == at::kHalf ? 0x1p-10 : c.dtypes.param == at::kBFloat16 ? 0x1p-7 : 0x1p-17;
  t.value.fill_(1);
  for (int i = 1; i <= 64; ++i) {
    t.value.add_(step / 32);
    t.working.copy_(t.value);
    EXPECT_EQ(t.value[0].item<double>(), 1 + i * step / 32);
    const double rounded =
        c.dtypes.param == at::kFloat ? i / 32.0 : std::nearbyint(i / 32.0);  // ties to even, as the cast
    EXPECT_EQ(param->tensor[0].item<double>(), 1 + rounded * step) << i;
  }
}

// 2049 has 12 bits: float16 has 2048 and 2050, bfloat16 2048 and 2064. A sum over rows is float32 inside and is rounded
// once.
void check_gradients_are_added_up_in_their_type(const PrecisionCase& c, at::ScalarType grad) {
  Dtypes dtypes = c.dtypes;
  dtypes.grad = dtypes.reduce = grad;
  const auto weight = std::make_shared<Param>("w", Layout::whole({1, 1}), InitRule::ones());
  const FlatUnit flat = flat_unit(weight, dtypes);
  ASSERT_EQ(weight->grad.scalar_type(), grad);
  const at::Tensor rows = at::ones({2048, 1}, c.dtypes.param), one = at::ones({1, 1}, c.dtypes.param);
  const double next = grad == at::kFloat ? 2049 : 2048;
  accumulate_weight_grad(*weight, rows, rows);
  EXPECT_EQ(weight->grad.item<double>(), 2048);
  accumulate_weight_grad(*weight, one, one);
  EXPECT_EQ(weight->grad.item<double>(), next);

  weight->restart_grad();
  ops::accumulate_bias_grad(*weight, rows);
  EXPECT_EQ(weight->grad.item<double>(), 2048);
  ops::accumulate_bias_grad(*weight, one);
  EXPECT_EQ(weight->grad.item<double>(), next);

  weight->restart_grad();
  ops::accumulate_embedding_grad(*weight, at::zeros({2048}, at::kLong), rows);
  EXPECT_EQ(weight->grad.item<double>(), 2048);
  ops::accumulate_embedding_grad(*weight, at::zeros({1}, at::kLong), one);
  EXPECT_EQ(weight->grad.item<double>(), next);
}

// --- whole runs

// Those of one case, each made once.
class PrecisionRuns {
 public:
  PrecisionRuns(const PrecisionCase& c, TrainFunction train) : case_(c), train_(std::move(train)) {}

  const TrainedRun& float32(const std::string& what = "") { return run("float32", what, "", 1); }
  // Two ranks share the micro-batches that one adds up.
  const TrainedRun& ours(const std::string& what = "", int ranks = 1, const std::string& name = "ours") {
    return run(name, both(what, ranks == 2 ? R"("gradient_accumulation_steps": 1)" : ""), case_.section, ranks);
  }
  // Rounded layers are so far from whole ones.
  void check_decorators(double share) const {
    expect_decorators_compose({.sections = parse_json("{" + case_.section + "}", "test"), .share = share}, train_);
  }
  void check_stop() const { expect_same_bits_after_a_stop(parse_json("{" + case_.section + "}", "test"), 1, train_); }

 private:
  const TrainedRun& run(const std::string& name, const std::string& what, const std::string& section, int ranks) {
    const std::string key = concat(name, what, ranks);
    if (!runs_.count(key))
      runs_[key] = train_(precision_config(folder_, concat("run", runs_.size()), both(what, section)), ranks);
    return runs_[key];
  }
  const PrecisionCase case_;
  const TrainFunction train_;
  const TempFolder folder_;
  std::map<std::string, TrainedRun> runs_;
};

void check_follows_float32(const PrecisionCase& c, PrecisionRuns& runs) {
  const std::string plain = R"("fused_block": false, "attention": "standard")";
  const std::string llama =
      R"("model": {"type": "gpt", "params": {"num_layers": 2, "hidden_size": 48, "num_attention_heads": 4, "num_query_groups": 2,
    "ffn_hidden_size": 64, "vocab_size": 96, "max_position_embeddings": 32, "normalization": "rmsnorm", "activation": "swiglu",
    "position_embedding_type": "rope", "add_bias": false, "untie_embeddings_and_output_weights": true}})";
  EXPECT_LT(figure(runs.float32(), kPrecisionSteps - 1, "loss"), figure(runs.float32(), 0, "loss") - 0.1)
      << "there was nothing to follow";
  expect_same_curve(runs.ours(), runs.float32(), c.loss_rel, c.norm_rel);
  expect_same_curve(runs.ours("", 2), runs.float32(), c.loss_rel, c.norm_rel);
  expect_same_curve(runs.ours(plain), runs.float32(), c.loss_rel, c.norm_rel);
  expect_same_curve(runs.ours(llama), runs.float32(llama), c.loss_rel, c.norm_rel);
  expect_same_curve(runs.ours(both(llama, plain)), runs.float32(llama), c.loss_rel, c.norm_rel);
}

void check_follows_float32_with_narrow_gradients(const PrecisionCase& c, PrecisionRuns& runs) {
  const std::string narrow = R"("data_types": {"grad_accum_dtype": ")" + c.own_type + R"("})";
  expect_same_curve(runs.ours(narrow), runs.float32(), c.loss_rel, c.narrow_norm_rel);
  expect_same_curve(runs.ours(narrow, 2), runs.float32(), c.loss_rel, c.narrow_norm_rel);
  EXPECT_EQ(figure(runs.ours(narrow), 0, "loss"), figure(runs.ours(), 0, "loss"));
  EXPECT_EQ(figure(runs.ours(narrow), 0, "grad_norm") == figure(runs.ours(), 0, "grad_norm"),
            c.dtypes.param == at::kFloat)
      << "it is another sum";
}

void check_sums_over_ranks_in_another_type(const PrecisionCase& c, PrecisionRuns& runs) {
  const std::string bf16 = R"("communication_data_type": "bf16")";
  expect_same_curve(runs.ours(bf16, 2), runs.ours("", 2), c.loss_rel + 0.005, c.norm_rel + 0.01);
}

void check_runs_give_the_same_bits(PrecisionRuns& runs) {
  const TrainedRun &first = runs.ours("", 2), &second = runs.ours("", 2, "ours again");
  for (size_t i = 0; i < first.metrics.size(); ++i)
    for (const char* name : {"loss", "grad_norm"}) EXPECT_EQ(figure(first, i, name), figure(second, i, name)) << i;
  EXPECT_TRUE(equal_tensors(SafetensorsFile::open(first.weights_file()).tensor("transformer.wte.weight"),
                            SafetensorsFile::open(second.weights_file()).tensor("transformer.wte.weight")));
}

void check_writes_the_masters(const PrecisionCase& c, PrecisionRuns& runs) {
  const at::Tensor weight =
      SafetensorsFile::open(runs.ours().weights_file()).tensor("transformer.h.0.attn.c_attn.weight");
  EXPECT_EQ(weight.scalar_type(), at::kFloat);
  EXPECT_EQ(at::equal(weight, weight.to(c.dtypes.param).to(at::kFloat)), c.dtypes.param == at::kFloat);
}

void check_starts_from_the_values_of_float32(PrecisionRuns& runs) {
  const std::string still = R"("train_steps": 1, "optimizer": {"type": "SGD", "params": {"lr": 0}})";
  const SafetensorsFile a = SafetensorsFile::open(runs.ours(still).weights_file()),
                        b = SafetensorsFile::open(runs.float32(still).weights_file());
  for (const char* name : {"transformer.wte.weight", "transformer.h.1.mlp.c_fc.weight"})
    EXPECT_TRUE(equal_tensors(a.tensor(name), b.tensor(name)));
}

// A plugin's case: activations are rounded to 11 or 8 bits, their sums are not.
PrecisionCase case_of(const Subject& subject) {
  const Host host;
  const Dtypes types =
      installed_plugins().make<Precision>(Precision::kKind, subject.name, subject.options, host.services)->dtypes();
  const Value section = Value::Object{{"type", subject.name}, {"params", subject.options}};
  PrecisionCase c{concat("\"precision\": ", section.to_json()), types, "", 0, 0, 0};
  if (types.param == at::kHalf)
    c.own_type = "fp16", c.loss_rel = 0.001, c.norm_rel = c.narrow_norm_rel = 0.01;
  else if (types.param == at::kBFloat16)
    c.own_type = "bf16", c.loss_rel = 0.005, c.norm_rel = c.narrow_norm_rel = 0.05;
  else if (types.param == at::kFloat)
    c.own_type = "fp32", c.loss_rel = 1e-4, c.norm_rel = c.narrow_norm_rel = 1e-3;
  else
    throw fail(ErrorCode::plugin, subject.text(), " computes in ", c10::toString(types.param),
               ", for which the suite has no tolerance");
  return c;
}

using PrecisionCheck = void (*)(const PrecisionCase&, PrecisionRuns&);
constexpr std::pair<const char*, PrecisionCheck> kPrecisionChecks[] = {
    {"masters_lose_nothing", [](const PrecisionCase& c, PrecisionRuns&) { check_masters_lose_nothing(c); }},
    {"gradients_are_added_up_in_their_type",
     [](const PrecisionCase& c, PrecisionRuns&) {
       check_gradients_are_added_up_in_their_type(c, c.dtypes.grad);
       check_gradients_are_added_up_in_their_type(c, c.dtypes.param);
     }},
    {"follows_float32", check_follows_float32},
    {"follows_float32_with_narrow_gradients", check_follows_float32_with_narrow_gradients},
    {"sums_over_ranks_in_another_type", check_sums_over_ranks_in_another_type},
    {"gives_the_same_bits_twice",
     [](const PrecisionCase&, PrecisionRuns& runs) { check_runs_give_the_same_bits(runs); }},
    {"writes_the_masters", check_writes_the_masters},
    {"starts_from_the_values_of_float32",
     [](const PrecisionCase&, PrecisionRuns& runs) { check_starts_from_the_values_of_float32(runs); }},
    {"state_survives_a_stop", [](const PrecisionCase&, PrecisionRuns& runs) { runs.check_stop(); }},
    {"decorators_compose",
     [](const PrecisionCase& c, PrecisionRuns& runs) {
       runs.check_decorators(c.dtypes.param == at::kFloat ? 2e-3 : 1.0 / 3);
     }},
};

}  // namespace

Suite precision_suite() {
  Suite suite;
  for (const auto& [name, check] : kPrecisionChecks)
    suite.push_back({name, [check = check](const Subject& subject) {
                       const PrecisionCase c = case_of(subject);
                       PrecisionRuns runs(c, subject.train);
                       check(c, runs);
                     }});
  return suite;
}

void run_precision_suite(const PrecisionCase& c, const TrainFunction& train) {
  PrecisionRuns runs(c, train);
  for (const auto& [name, check] : kPrecisionChecks) {
    SCOPED_TRACE(name);
    check(c, runs);
  }
}

}  // namespace drivetrain::test
