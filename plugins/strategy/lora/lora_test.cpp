// strategy/lora: the layer against autograd, its parts under tensor parallelism, what is merged.
#include <ATen/ops/equal.h>

#include <drivetrain/testkit/strategy/chain.h>
#include "layer.h"
#include "test_lora.h"

namespace drivetrain {
namespace {

using namespace drivetrain::lora_test;

// y, dx and the gradients of A and B by LibTorch's autograd, from the formula alone.
struct Reference {
  at::Tensor y, dx;
  std::map<std::string, at::Tensor> grads;
};
struct Piece {
  std::string name;
  int64_t first, rows;
  double scale;
};
Reference by_autograd(const std::vector<Piece>& pieces, const at::Tensor& x_value, const at::Tensor& dy, int64_t rank) {
  const at::Tensor x = x_value.clone().requires_grad_(true);
  at::Tensor y = x.matmul(numbers("block.0.attn.qkv.weight", {12, kIn}).t()) + numbers("block.0.attn.qkv.bias", {12});
  std::vector<at::Tensor> more;
  std::map<std::string, at::Tensor> leaves;
  int64_t row = 0;
  const auto nothing = [&](int64_t rows) {
    if (rows > 0) more.push_back(at::zeros({x.size(0), x.size(1), rows}, x.options().requires_grad(false)));
  };
  for (const Piece& piece : pieces) {
    const std::string name = "block.0.attn.qkv." + piece.name;
    const at::Tensor a = leaves[name + ".lora_A"] = numbers(name + ".lora_A", {rank, kIn}).requires_grad_(true);
    const at::Tensor b = leaves[name + ".lora_B"] = numbers(name + ".lora_B", {piece.rows, rank}).requires_grad_(true);
    nothing(piece.first - row);
    more.push_back(x.matmul(a.t()).matmul(b.t()) * piece.scale);
    row = piece.first + piece.rows;
  }
  nothing(12 - row);
  y = y + at::cat(more, 2);
  y.backward(dy);
  Reference r{y.detach(), x.grad(), {}};
  for (const auto& [name, leaf] : leaves) r.grads[name] = leaf.grad();
  return r;
}

void expect_reference(const Layer& layer, const Reference& wanted) {
  for (const ParamPtr& param : layer.params()) {
    const auto grad = wanted.grads.find(param->name);
    EXPECT_EQ(param->trainable, grad != wanted.grads.end()) << param->name;
    if (param->trainable) expect_near(param->grad, grad->second, 1e-12, param->name);
  }
}

const char kTwo[] = R"({"r": 2, "lora_alpha": 6, "targets": ["q_proj", "v_proj"]})";
const std::vector<Piece> kTwoPieces = {{"q_proj", 0, 6, 3}, {"v_proj", 10, 2, 3}};

TEST(Lora, a_fused_layer_has_an_adapter_for_each_tensor_and_computes_what_autograd_does) {
  Made made(kTwo);
  const auto layer = made.linear(fused_spec());
  const at::Tensor x = numbers("x", {kRows, kPositions, kIn}), dy = numbers("dy", {kRows, kPositions, 12});
  const Reference wanted = by_autograd(kTwoPieces, x, dy, 2);
  expect_near(layer->apply(x, {}, nullptr), wanted.y, 1e-12, "y");
  WeightWork at_once;
  expect_near(layer->apply_backward(dy, x, {}, at_once), wanted.dx, 1e-12, "dx");
  expect_reference(*layer, wanted);
  EXPECT_EQ(made.param(*layer, "q_proj.lora_A")->role, ParamRole::adapter);
  EXPECT_EQ(made.param(*layer, "k_proj.lora_A"), nullptr);
}

// The values may be gone by then: another layer's are in their memory.
TEST(Lora, weight_gradients_that_wait_are_the_same) {
  Made made(kTwo);
  const auto layer = made.linear(fused_spec());
  const at::Tensor x = numbers("x", {kRows, kPositions, kIn}), dy = numbers("dy", {kRows, kPositions, 12});
  WeightWork::Parked parked;
  WeightWork later(&parked);
  layer->apply_backward(dy, x, {}, later);
  for (const ParamPtr& param : layer->params()) param->tensor.zero_();
  for (const auto& work : parked) work();
  expect_reference(*layer, by_autograd(kTwoPieces, x, dy, 2));
}

TEST(Lora, scale_is_alpha_over_rank_or_its_root_and_patterns_choose_by_module) {
  Made made(R"({"r": 4, "lora_alpha": 6, "use_rslora": true, "target_modules": "all-linear",
                "rank_pattern": {"k_proj": 1}, "alpha_pattern": {"layers.0.self_attn.k_proj": 5, ".*v_proj": 2},
                "exclude_modules": ["v_proj"]})");
  const auto layer = made.linear(fused_spec());
  EXPECT_EQ(made.param(*layer, "v_proj.lora_A"), nullptr);
  EXPECT_EQ(made.param(*layer, "k_proj.lora_A")->layout.global_shape, (std::vector<int64_t>{1, kIn}));
  made.param(*layer, "q_proj.lora_B")->tensor.zero_();
  const at::Tensor x = numbers("x", {kRows, kPositions, kIn});
  const Reference wanted = by_autograd({{"k_proj", 6, 4, 5}}, x, numbers("dy", {kRows, kPositions, 12}), 1);
  expect_near(layer->apply(x, {}, nullptr), wanted.y, 1e-12, "y");
  EXPECT_EQ(lora::scale_of(6, 4, true), 3);
  const std::string large = refusal_of(R"({"r": 4, "targets": ["v_proj"]})");
  EXPECT_NE(large.find("r (rank): 4 is larger than model.layers.0.self_attn.v_proj of [2, 8] has room for; use at "
                       "most 2"),
            std::string::npos)
      << large;
}

// Two ranks of a layer whose outputs, or inputs, are cut: their parts are those of the whole, and what is a partial sum
// adds up to the whole's gradient. Dropout included.
class TensorParts : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Lora, TensorParts, testing::Bool(),
                         [](const auto& info) { return info.param ? "columns" : "rows"; });

TEST_P(TensorParts, are_those_of_the_whole) {
  const bool columns = GetParam();
  const std::string options = R"({"r": 2, "targets": ["q_proj", "v_proj"], "dropout": 0.4})";
  const at::Tensor x = numbers("x", {kRows, kPositions, kIn}), dy = numbers("dy", {kRows, kPositions, 12});
  ChainContext context;
  context.batch_ = {at::zeros({kRows, kPositions}, at::TensorOptions(at::kLong)), {}, 40, 12, {{0, kPositions}}};
  const auto run = [&](Made& made, const LinearSpec& spec, const at::Tensor& x_part, const at::Tensor& dy_part,
                       std::map<std::string, std::vector<at::Tensor>>& found) {
    const auto layer = made.linear(spec);
    dynamic_cast<lora::AdaptedLinear&>(*layer).set_keys(context);
    Linear::Options bare;
    bare.add_bias = false;
    found["y"].push_back(layer->apply(x_part, bare, nullptr));
    WeightWork at_once;
    found["dx"].push_back(layer->apply_backward(dy_part, x_part, bare, at_once));
    for (const ParamPtr& param : layer->params())
      if (param->trainable) found[param->name].push_back(param->grad);
    return layer;
  };
  std::map<std::string, std::vector<at::Tensor>> whole, parts;
  Made one(options);
  run(one, fused_spec(), x, dy, whole);
  for (int64_t rank = 0; rank < 2; ++rank) {
    Made made(options, Mesh({{"tp", 2}}, rank, 2, nullptr));
    LinearSpec spec = fused_spec();
    Layout layout = Layout::whole({12, kIn});
    layout.dims = columns ? std::vector<DimSplit>{{{"tp"}, {6, 4, 2}}, {}} : std::vector<DimSplit>{{}, {{"tp"}, {}}};
    spec.weight = layout;
    if (columns)
      spec.out = 6, spec.blocks = {3, 2, 1};
    else
      spec.in = kIn / 2;
    Layout like_y = Layout::whole({12, kRows * kPositions}), like_x = Layout::whole({kIn, kRows * kPositions});
    if (columns) like_y.dims = {layout.dims[0], {}};
    if (!columns) like_x.dims = {layout.dims[1], {}};
    const auto of = [&](const at::Tensor& t, const Layout& cut) {
      return part(t.permute({2, 0, 1}).reshape({t.size(2), -1}), cut, made.mesh)
          .t()
          .reshape({kRows, kPositions, -1})
          .contiguous();
    };
    const auto layer = run(made, spec, of(x, like_x), of(dy, like_y), parts);
    const at::Tensor y = parts["y"].back(), dx = parts["dx"].back();
    if (columns) expect_near(y, of(whole["y"][0], like_y), 1e-12, "y");
    if (!columns) expect_near(dx, of(whole["dx"][0], like_x), 1e-12, "dx");
    for (const ParamPtr& param : layer->params()) {
      if (!param->trainable) continue;
      const bool partial = param->name.ends_with("lora_A") == columns;
      EXPECT_EQ(param->layout.partial_over, partial ? std::vector<std::string>{"tp"} : std::vector<std::string>{});
      if (!partial) expect_near(param->grad, part(whole[param->name][0], param->layout, made.mesh), 1e-12, param->name);
    }
  }
  for (const auto& [name, both] : parts)
    if (name == (columns ? "dx" : "y") || name.ends_with(columns ? "lora_A" : "lora_B"))
      expect_near(both[0] + both[1], whole[name][0], 1e-12, name);
}

TEST(Lora, dropout_of_some_positions_is_that_of_the_whole) {
  Made made(R"({"r": 2, "targets": ["q_proj"], "dropout": 0.5})");
  const auto layer = made.linear(fused_spec());
  auto& adapted = dynamic_cast<lora::AdaptedLinear&>(*layer);
  const at::Tensor x = numbers("x", {kRows, kPositions, kIn});
  ChainContext context;
  context.batch_ = {at::zeros({kRows, kPositions}, at::TensorOptions(at::kLong)), {}, 40, 12, {{0, kPositions}}};
  adapted.set_keys(context);
  const at::Tensor whole = layer->apply(x, {}, nullptr);
  context.activation_positions_ = {{1, 1}, {3, 1}};
  adapted.set_keys(context);
  const at::Tensor some = at::cat({x.narrow(1, 1, 1), x.narrow(1, 3, 1)}, 1);
  EXPECT_TRUE(at::equal(layer->apply(some, {}, nullptr), at::cat({whole.narrow(1, 1, 1), whole.narrow(1, 3, 1)}, 1)));
  context.mode_ = Mode::evaluate;
  adapted.set_keys(context);
  EXPECT_FALSE(at::equal(layer->apply(x, {}, nullptr), whole)) << "evaluation drops nothing";
}

TEST(Lora, merge_adds_each_adapter_to_its_rows) {
  Made made(kTwo);
  const auto layer = made.linear(fused_spec());
  const at::Tensor w = numbers("block.0.attn.qkv.weight", {12, kIn}).to(at::kFloat);
  const auto whole = [&](const std::string& name) { return made.param(*layer, name)->tensor.to(at::kFloat); };
  const at::Tensor merged = made.strategy->merge(*layer->params()[0], w.clone(), whole);
  const at::Tensor x = numbers("x", {1, 5, kIn});
  Linear::Options bare;
  bare.add_bias = false;
  expect_near(x.to(at::kFloat).matmul(merged.t()), layer->apply(x, bare, nullptr).to(at::kFloat), 1e-5, "y");
  EXPECT_TRUE(at::equal(merged.narrow(0, 6, 4), w.narrow(0, 6, 4))) << "k_proj has no adapter";
}

}  // namespace
}  // namespace drivetrain
