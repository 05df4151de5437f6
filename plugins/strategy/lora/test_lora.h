// The strategy over plain layers of a small model, for its tests.
#pragma once

#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <drivetrain/mesh.h>
#include <drivetrain/plan_record.h>
#include <drivetrain/random.h>
#include <drivetrain/toolkit/layers/plain_layers.h>

#include "support/plugin_under_test.h"

namespace drivetrain::lora_test {

using namespace drivetrain::test;

inline constexpr int64_t kIn = 8, kRows = 3, kPositions = 4;

inline at::Tensor numbers(const std::string& name, std::vector<int64_t> shape, double std = 1) {
  at::Tensor flat = at::empty({Layout::whole(shape).global_numel()}, at::TensorOptions(at::kFloat));
  fill_normal(flat, 5, name, 0, std);
  return flat.view(shape).to(at::kDouble);
}

// A rank's part of a whole tensor.
inline at::Tensor part(at::Tensor whole, const Layout& layout, const Mesh& mesh) {
  for (size_t dim = 0; dim < layout.global_shape.size(); ++dim) {
    std::vector<at::Tensor> parts;
    for (const Layout::Range& range : layout.ranges(dim, mesh))
      parts.push_back(whole.narrow(static_cast<int64_t>(dim), range.first, range.count));
    whole = at::cat(parts, static_cast<int64_t>(dim));
  }
  return whole.contiguous();
}

inline void fill(const Layer& layer, const Mesh& mesh) {
  for (const ParamPtr& param : layer.params()) {
    param->tensor = part(numbers(param->name, param->layout.global_shape), param->layout, mesh);
    param->grad = param->trainable ? at::zeros(param->tensor.sizes(), param->tensor.options()) : at::Tensor();
    param->restart_grad();
  }
}

// A model of one linear layer that is fused of three Hugging Face tensors.
inline LinearSpec fused_spec() {
  LinearSpec spec;
  spec.name = "block.0.attn.qkv", spec.in = kIn, spec.out = 12, spec.blocks = {6, 4, 2};
  return spec;
}

inline WeightRules fused_rules() {
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

inline std::string problem(const std::function<void()>& call) { return error_of(call); }

// With options that are refused when they are read, or in the plan of a run once its model is built.
inline std::string refusal_of(const std::string& options) {
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

}  // namespace drivetrain::lora_test
