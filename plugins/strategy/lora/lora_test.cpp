// strategy/lora: the layer against autograd, its parts under tensor parallelism, names and options, PEFT's files.
#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>

#include <filesystem>
#include <fstream>

#include <drivetrain/mesh.h>
#include <drivetrain/plan_record.h>
#include <drivetrain/toolkit/layers/plain_layers.h>

#include <drivetrain/testkit/kit/temp_folder.h>
#include <drivetrain/testkit/strategy/chain.h>
#include "layer.h"
#include "peft_folder.h"
#include "support/plugin_under_test.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;

constexpr int64_t kIn = 8, kRows = 3, kPositions = 4;

at::Tensor numbers(const std::string& name, std::vector<int64_t> shape, double std = 1) {
  at::Tensor flat = at::empty({Layout::whole(shape).global_numel()}, at::TensorOptions(at::kFloat));
  fill_normal(flat, 5, name, 0, std);
  return flat.view(shape).to(at::kDouble);
}

// A rank's part of a whole tensor.
at::Tensor part(at::Tensor whole, const Layout& layout, const Mesh& mesh) {
  for (size_t dim = 0; dim < layout.global_shape.size(); ++dim) {
    std::vector<at::Tensor> parts;
    for (const Layout::Range& range : layout.ranges(dim, mesh))
      parts.push_back(whole.narrow(static_cast<int64_t>(dim), range.first, range.count));
    whole = at::cat(parts, static_cast<int64_t>(dim));
  }
  return whole.contiguous();
}

void fill(const Layer& layer, const Mesh& mesh) {
  for (const ParamPtr& param : layer.params()) {
    param->tensor = part(numbers(param->name, param->layout.global_shape), param->layout, mesh);
    param->grad = param->trainable ? at::zeros(param->tensor.sizes(), param->tensor.options()) : at::Tensor();
    param->restart_grad();
  }
}

// A model of one linear layer that is fused of three Hugging Face tensors.
LinearSpec fused_spec() {
  LinearSpec spec;
  spec.name = "block.0.attn.qkv", spec.in = kIn, spec.out = 12, spec.blocks = {6, 4, 2};
  return spec;
}

WeightRules fused_rules() {
  WeightRules rules;
  rules.prefix = "model.";
  const std::string theirs = "layers.0.self_attn.";
  rules.rules.push_back(
      {"block.0.attn.qkv.weight",
       {{theirs + "q_proj.weight", 6}, {theirs + "k_proj.weight", 4}, {theirs + "v_proj.weight", 2}}});
  rules.rules.push_back({"block.0.attn.proj.weight", {{theirs + "o_proj.weight", kIn}}});
  rules.rules.push_back({"embedding.word.weight", {{"embed_tokens.weight", 11}}});
  rules.rules.push_back({"head.weight", {{"lm_head.weight", 11, false}}});
  return rules;
}

// The strategy over plain layers on one rank of a mesh.
struct Made {
  explicit Made(const std::string& options, Mesh on = Mesh({}, 0, 1, nullptr), const WeightRules& rules = fused_rules())
      : mesh(std::move(on)), strategy(make_plugin<Strategy>(host, "lora", options)) {
    builder.layers = make_plain_layers(builder.attention());
    builder.weight_rules = [rules](const std::string&) { return rules; };
    strategy->build(builder);
  }
  std::shared_ptr<Linear> linear(const LinearSpec& spec) {
    auto layer = builder.layers->linear(spec);
    fill(*layer, mesh);
    return layer;
  }
  ParamPtr param(const Layer& layer, const std::string& end) {
    for (const ParamPtr& param : layer.params())
      if (param->name.ends_with(end)) return param;
    return nullptr;
  }
  const Host host;
  const Mesh mesh;
  const ModelFacts facts;
  Builder builder{nullptr, nullptr, mesh, facts};
  std::unique_ptr<Strategy> strategy;
};

std::string problem(const std::function<void()>& call) { return error_of(call); }

// With options that are refused when they are read, or in the plan of a run once its model is built.
std::string refusal_of(const std::string& options) {
  std::string refusals;
  const std::string thrown = problem([&] {
    Made made(options);
    made.linear(fused_spec());
    PlanRecord context({}, {});
    context.set_plugin("strategy/lora");
    made.strategy->plan(context);
    for (const auto& refusal : context.refusals()) refusals += refusal.text + "\n";
    if (refusals.empty()) throw Error(ErrorCode::internal, "nothing is refused");
    throw Error(ErrorCode::config, refusals);
  });
  return thrown;
}

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

TEST(Lora, the_base_is_frozen_but_for_modules_to_save) {
  Made made(R"({"modules_to_save": ["lm_head"], "r": 2})");
  EmbeddingSpec embedding;
  embedding.name = "embedding.word", embedding.count = 11, embedding.dim = kIn;
  EXPECT_FALSE(made.builder.layers->embedding(embedding)->params()[0]->trainable);
  LmLossSpec head;
  head.name = "head", head.vocab = 11, head.dim = kIn;
  EXPECT_TRUE(made.builder.layers->lm_loss(head)->params()[0]->trainable);
  EXPECT_NE(refusal_of(R"({"modules_to_save": ["q_proj"], "targets": ["v_proj"], "r": 2})")
                .find("trained whole or not at all"),
            std::string::npos);
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

TEST(Lora, targets_that_match_nothing_are_named_with_the_nearest) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"targets": ["q_prog"]})",
       R"(target_modules (targets): no module of the model is named "q_prog"; the nearest names are "q_proj")"},
      {R"({"targets": "q_proj"})", R"(no module of the model matches the regular expression "q_proj")"},
      {R"({"targets": "(["})", R"("([" is no regular expression)"},
      {R"({"modules_to_save": ["lm_haed"]})",
       R"(modules_to_save: no module of the model is named "lm_haed"; the nearest names are "lm_head")"},
      {R"({"rank_pattern": {"o_prj": 2}})", R"(rank_pattern: no module of the model is named "o_prj")"},
      {R"({"use_dora": true})", "DoRA"},
      {R"({"bias": "all"})", "biases of the base"},
      {R"({"init_lora_weights": "pissa"})", "pissa"},
      {R"({"rank_pattern": {"o_proj": 0}})", "a rank of at least 1"},
  };
  for (const auto& [options, said] : cases) {
    const std::string text = refusal_of(options);
    EXPECT_NE(text.find(said), std::string::npos) << options << "\n" << text;
  }
}

TEST(Lora, what_is_no_linear_layer_is_refused_when_the_model_is_built) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"targets": ["embed_tokens", "q_proj"], "r": 2})", R"("embed_tokens" is no linear layer of a block)"},
      {R"({"targets": ["q_proj"], "layers_to_transform": 3, "r": 2})", "there is no layer 3"},
      {R"({"targets": ["q_proj"], "exclude_modules": ["q_proj"], "r": 2})", "no linear layer is left to adapt"}};
  for (const auto& [options, said] : cases) {
    const std::string text = refusal_of(options);
    EXPECT_NE(text.find(said), std::string::npos) << options << "\n" << text;
  }
}

TEST(Lora, says_that_experts_get_no_adapters) {
  Made made(R"({"targets": ["q_proj"], "r": 2})");
  made.linear(fused_spec());
  ModelFacts facts;
  facts.mixture = {8, 2, 3, 1000};
  PlanRecord context(facts, {});
  made.strategy->plan(context);
  ASSERT_EQ(context.costs().size(), 1u);
  EXPECT_EQ(context.costs()[0].text, "routers and experts get no adapters: those of 3 layers stay as they are");
}

TEST(Lora, names_files_as_peft_does) {
  Made made(R"({"r": 2, "lora_alpha": 6, "target_modules": ["v_proj", "q_proj"], "modules_to_save": ["lm_head"],
                "save": "both"})");
  made.linear(fused_spec());
  EXPECT_TRUE(made.strategy->exports_model());
  const std::vector<WeightFolder> folders = made.strategy->weight_folders();
  ASSERT_EQ(folders.size(), 1u);
  EXPECT_EQ(folders[0].name, "adapter");
  EXPECT_EQ(folders[0].rules.prefix, "base_model.model.");
  std::vector<std::string> names;
  for (const WeightRule& rule : folders[0].rules.rules)
    for (const WeightPart& part : rule.parts) names.push_back(part.name);
  EXPECT_EQ(names, (std::vector<std::string>{"model.layers.0.self_attn.q_proj.lora_A.weight",
                                             "model.layers.0.self_attn.q_proj.lora_B.weight",
                                             "model.layers.0.self_attn.v_proj.lora_A.weight",
                                             "model.layers.0.self_attn.v_proj.lora_B.weight", "lm_head.weight"}));
  const Value& config = folders[0].rules.config;
  EXPECT_EQ(config.find("r")->as_int(), 2);
  EXPECT_EQ(config.find("peft_type")->as_string(), "LORA");
  EXPECT_EQ(config.find("target_modules")->to_json(), R"(["v_proj","q_proj"])");
  EXPECT_EQ(config.find("modules_to_save")->to_json(), R"(["lm_head"])");

  EXPECT_FALSE(Made("{}").strategy->exports_model());
  EXPECT_TRUE(Made(R"({"save": "merged"})").strategy->weight_folders().empty());
}

// What is left out is the file's, what is given has to be the same, what is not here is refused.
TEST(Lora, goes_on_with_an_adapter_by_its_own_config) {
  const TempFolder folder;
  const auto options_of = [&](const std::string& config, const std::string& given = "") {
    std::ofstream(folder / "adapter_config.json") << config;
    return concat(R"({"from": ")", folder.path(""), "\"", given, "}");
  };
  const std::string plain = R"("peft_type": "LORA", "r": 2, "lora_alpha": 6, "target_modules": ["v_proj", "q_proj"])";
  {
    Made made(options_of("{" + plain + "}"));
    const auto layer = made.linear(fused_spec());
    EXPECT_EQ(made.param(*layer, "v_proj.lora_A")->layout.global_shape[0], 2);
    EXPECT_EQ(made.strategy->weight_folders()[0].rules.config.find("lora_alpha")->as_double(), 6);
  }
  Made same(options_of("{" + plain + "}", R"(, "r": 2, "targets": ["q_proj", "v_proj"])"));
  const std::pair<std::string, std::string> cases[] = {
      {options_of("{" + plain + "}", R"(, "r": 4)"), R"(option rank is 4, and the adapter in "from" has r 2)"}};
  for (const auto& [options, said] : cases)
    EXPECT_NE(problem([&] { Made made(options); }).find(said), std::string::npos);
  for (const auto& [more, said] :
       {std::pair<const char*, const char*>{R"("use_dora": true)", "use_dora true is not in this version"},
        {R"("bias": "all")", R"(bias "all" is not in this version)"},
        {R"("init_lora_weights": "olora")", "changed the base weights"},
        {R"("lora_dropout": 2)", "adapter_config.json: lora_dropout: is 2; wanted 0 to 0.999"},
        {R"("lora_dropout": -1)", "adapter_config.json: lora_dropout: is -1; wanted 0 to 0.999"},
        {R"("something_new": 3)", "something_new 3 cannot be honoured"}}) {
    const std::string text = problem([&, more = more] { Made made(options_of("{" + plain + ", " + more + "}")); });
    EXPECT_NE(text.find(said), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace drivetrain
