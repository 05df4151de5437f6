// The plain layers' norms and loss, in float32, against golden operators in float64.
#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>

#include <drivetrain/safetensors.h>

#include <drivetrain/toolkit/layers/plain_layers.h>

namespace drivetrain {
namespace {

class OneBatch : public StepContext {
 public:
  int64_t step() const override { return 1; }
  Mode mode() const override { return Mode::train; }
  const Batch& batch() const override { return batch_; }
  const Visit& visit() const override { return visit_; }
  std::span<const Visit> ahead() const override { return {}; }
  RandomKey random(std::string_view) const override { return {}; }
  at::Tensor add_loss(const std::string&, const at::Tensor&, double) override { return {}; }
  void metric(const std::string&, const at::Tensor&) override {}
  Batch batch_;
  Visit visit_;
};

struct Golden {
  Value facts;
  SafetensorsFile file;
  double rtol;

  static Golden of(const std::string& op) {
    const std::string folder = std::string(DRIVETRAIN_GOLDEN_DIR) + "/ops/";
    const Value cases = read_json_file(folder + "cases.json");
    return {*cases.find("ops")->find(op), SafetensorsFile::open(folder + op + ".safetensors"),
            cases.find("rtol_float32")->as_double()};
  }
  const Value::Object& cases() const { return facts.find("cases")->members(); }
  at::Tensor float32(const std::string& name) const { return file.tensor(name).to(at::kFloat); }

  // |ours - reference| <= atol + rtol |reference|
  void expect(const Value::Member& c, const std::string& what, const at::Tensor& ours) const {
    const at::Tensor reference = file.tensor(c.key + "." + what);
    ASSERT_EQ(ours.numel(), reference.numel()) << c.key << "." << what;
    const double atol = c.value.find("atol_float32")->find(what)->as_double();
    const at::Tensor difference = (ours.detach().to(at::kDouble).reshape(reference.sizes()) - reference).abs();
    EXPECT_LE((difference - reference.abs() * rtol).max().item<double>(), atol) << c.key << "." << what;
  }
};

void set(const ParamPtr& param, const at::Tensor& value) {
  param->tensor = value.clone().set_requires_grad(true);
  param->grad = at::empty(value.sizes(), value.options());
}

const std::shared_ptr<Attention> kNoAttention;  // neither norms nor the loss ask for it

void check_norm(const std::string& op, bool rms) {
  const Golden golden = Golden::of(op);
  ASSERT_GE(golden.cases().size(), 3u);
  for (const auto& c : golden.cases()) {
    const at::Tensor x = golden.float32(c.key + ".x").set_requires_grad(true);
    NormSpec spec{"norm", x.size(-1), rms, c.value.find("eps")->as_double()};
    const auto norm = make_plain_layers(kNoAttention)->norm(spec);
    set(norm->params()[0], golden.float32(c.key + ".weight"));
    if (!rms) set(norm->params()[1], golden.float32(c.key + ".bias"));
    OneBatch ctx;
    const at::Tensor y = norm->forward(x, ctx);
    y.backward(golden.float32(c.key + ".dy"));
    golden.expect(c, "y", y);
    golden.expect(c, "dx", x.grad());
    golden.expect(c, "dweight", norm->params()[0]->grad);
    if (!rms) golden.expect(c, "dbias", norm->params()[1]->grad);
  }
}

TEST(PlainLayers, layer_norm_agrees_with_the_golden_operator) { check_norm("layernorm", false); }
TEST(PlainLayers, rms_norm_agrees_with_the_golden_operator) { check_norm("rmsnorm", true); }

TEST(PlainLayers, norms_have_the_parameters_of_their_spec) {
  const auto layers = make_plain_layers(kNoAttention);
  NormSpec spec{"n", 4};
  const auto names = [&] {
    std::string names;
    for (const ParamPtr& param : layers->norm(spec)->params()) names += param->name + " ";
    return names;
  };
  EXPECT_EQ(names(), "n.weight n.bias ");
  spec.bias = false;
  EXPECT_EQ(names(), "n.weight ");
  spec.gain = false;
  EXPECT_EQ(names(), "");
  spec.gain = true, spec.offset = 1;
  const ParamPtr weight = layers->norm(spec)->params()[0];
  EXPECT_EQ(weight->init.kind, InitRule::Kind::zeros);
  EXPECT_EQ(weight->role, ParamRole::norm);
  spec.offset = 0.5;
  EXPECT_THROW((void)layers->norm(spec), Error);
}

// A layer with a part of the heads has the layout that the strategy gives it.
TEST(PlainLayers, norms_of_cut_heads_have_the_given_layout) {
  NormSpec spec{"n", 4, true};
  spec.weight = Layout::whole({4});
  spec.weight->partial_over = {"tp"};
  EXPECT_EQ(make_plain_layers(kNoAttention)->norm(spec)->params()[0]->layout, *spec.weight);
}

struct PlainAbilities : Attention {
  AttentionAbilities abilities() const override {
    AttentionAbilities can;
    can.remedy = "use attention/other";
    return can;
  }
  AttentionState forward(const at::Tensor&, const at::Tensor&, const at::Tensor&, const AttentionArgs&) const override {
    return {};
  }
  Tensors backward(const at::Tensor&, const AttentionState&, const AttentionArgs&) const override { return {}; }
};

TEST(PlainLayers, attention_refuses_what_the_plugin_cannot_do_when_it_is_made) {
  const auto layers = make_plain_layers(std::make_shared<PlainAbilities>());
  const auto refusal = [&](const AttentionSpec& spec) -> std::string {
    try {
      (void)layers->attention(spec);
    } catch (const Error& e) {
      return e.what();
    }
    return {};
  };
  AttentionSpec spec{"block.0.attn", 1, 1, 4};
  EXPECT_EQ(refusal(spec), "");
  spec.window = 8;
  EXPECT_NE(refusal(spec).find("wants a window of 8, which the attention plugin does not support; use attention/other"),
            std::string::npos);
  spec.window = 0, spec.softcap = 30;
  EXPECT_NE(refusal(spec).find("wants a softcap of 30"), std::string::npos);
}

// With the identity as output matrix the layer's input is its logits, and the gradient of the one that of the other.
TEST(PlainLayers, the_loss_agrees_with_the_golden_cross_entropy) {
  const Golden golden = Golden::of("cross_entropy");
  ASSERT_GE(golden.cases().size(), 4u);
  for (const auto& c : golden.cases()) {
    const at::Tensor x = golden.float32(c.key + ".logits").unsqueeze(0).set_requires_grad(true);
    const int64_t V = x.size(2);
    const auto head = make_plain_layers(kNoAttention)->lm_loss({"head", V, V, nullptr, InitRule::zeros()});
    set(head->params()[0], at::eye(V, at::TensorOptions(at::kFloat)));
    OneBatch ctx;
    ctx.batch_.labels_BS = golden.file.tensor(c.key + ".labels").unsqueeze(0);
    const at::Tensor loss = head->forward(x, ctx);
    loss.backward();
    golden.expect(c, "loss_sum", loss);
    golden.expect(c, "dlogits_sum", x.grad());
    const at::Tensor dw = x.grad()[0].t().mm(x.detach()[0]);
    EXPECT_LE((head->params()[0]->grad - dw).abs().max().item<double>(), 1e-5 * dw.abs().max().item<double>()) << c.key;
    EXPECT_TRUE(head->params()[0]->has_grad());
  }
}

}  // namespace
}  // namespace drivetrain
