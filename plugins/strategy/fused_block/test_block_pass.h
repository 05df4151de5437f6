// For the tests of fused blocks: a block's forward and backward with every switch of its description, what it keeps and
// what it tells the plan.
#pragma once

#include "conformance/strategy/memory.h"
#include "support/plugin_under_test.h"

#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include <drivetrain/mesh.h>
#include <drivetrain/random.h>
#include <drivetrain/strategy.h>
#include <drivetrain/toolkit/layers/plain_layers.h>

#include "test_formula_block.h"
#include "test_gelu_layers.h"
#include "test_operand_layers.h"

namespace drivetrain::test {

inline at::Tensor numbers(std::vector<int64_t> shape, const std::string& name, double std, at::ScalarType dtype) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  at::Tensor flat = at::empty({count}, at::TensorOptions(at::kFloat));
  fill_normal(flat, 5, name, 0, std);
  return flat.view(shape).to(dtype);
}

struct Passed {
  bool fused = false;
  double kept = 0, told = 0;             // bytes behind forward, and those that the plan counts
  double working = 0, told_working = 0;  // the most that either pass took beside them, and what the plan counts
  double on_cuda = 0;                    // that it counts for backward there, in bfloat16
  std::vector<std::string> names;
  std::map<std::string, at::Tensor> tensors;  // output, gradients by name
  std::vector<std::string> said;              // while it ran
};

// `gelu`: the layers whose name has it are GeluAnywhere; null: none, and the option is off. `operands`: the same of
// OperandsAnywhere.
inline Passed pass(const BlockSpec& spec, bool fused, at::ScalarType dtype, Keep keep, int64_t S = 5,
                   bool cheap = false, int64_t chunk = 0, const char* gelu = nullptr, const char* operands = nullptr) {
  at::set_num_threads(1);  // with tensors so small several wait for each other, on a busy machine for long
  const Host host;
  const auto strategy =
      make_plugin<Strategy>(host, "fused_block",
                            concat(R"({"recompute_cheap": )", cheap ? "true" : "false", R"(, "mlp_chunk": )", chunk,
                                   R"(, "gelu_fusion": )", gelu ? "true" : "false", "}"));
  const Mesh mesh({}, 0, 1, nullptr);
  const ModelFacts facts;
  Builder builder{nullptr, std::make_shared<FormulaAttention>(), mesh, facts};
  builder.layers = make_plain_layers(builder.attention());
  if (gelu) builder.layers = std::make_shared<GeluLayers>(builder.layers, gelu);
  if (operands) builder.layers = std::make_shared<OperandLayers>(builder.layers, operands);
  if (fused) strategy->build(builder);
  const UnitPtr unit = builder.layers->block(
      spec, *builder.layers, [&]() -> UnitPtr { return std::make_shared<FormulaBlock>(spec, *builder.layers); });
  builder.finish_attention();
  Passed passed;
  passed.fused = dynamic_cast<FormulaBlock*>(unit.get()) == nullptr;
  for (const ParamPtr& param : unit->params()) {
    passed.names.push_back(param->name);
    at::Tensor value = numbers(param->layout.global_shape, param->name, 0.3, dtype);
    if (param->init.kind == InitRule::Kind::ones) value.add_(1);
    param->tensor = value.set_requires_grad(true);
    param->grad = at::full(value.sizes(), std::numeric_limits<double>::quiet_NaN(), at::TensorOptions(dtype));
    param->restart_grad();
  }
  OneVisit ctx(2, S, keep);
  const auto input = [&](const char* name) {
    return numbers({2, S, spec.hidden}, name, 1, dtype).set_requires_grad(true);
  };
  Saved saved;
  const Tensors x = {input("residual"), input("delta")};
  const int64_t before = CountedMemory::most = CountedMemory::alive.load();
  Tensors y = unit->forward(x, ctx, saved);
  const at::Tensor& delta = y.back();  // which the next unit adds and drops
  const auto stream = static_cast<double>(delta.numel() * delta.element_size());
  passed.kept = static_cast<double>(CountedMemory::alive - before) - stream;
  if (spec.parallel) passed.kept -= stream;  // so is the residual
  // The plan counts what comes in, unless a block before keeps it: the residual of one that is not parallel.
  const double forward =
      static_cast<double>(CountedMemory::most - before) - passed.kept + stream * (spec.parallel ? 2 : 1);
  VisitShape shape;
  shape.rows = 2, shape.tokens = shape.rank_tokens = static_cast<double>(2 * S), shape.dtype = dtype;
  const auto counted = [&] { return *unit->visit_memory(shape, [&](std::string_view) { return keep; }); };
  if (passed.fused) {
    passed.told = counted().kept.bytes(), passed.told_working = counted().working.bytes();
    shape.on_cpu = false, shape.dtype = at::kBFloat16;
    passed.on_cuda = counted().working.bytes();
  }
  const at::Tensor dy = numbers({2, S, spec.hidden}, "dy", 1, dtype);
  passed.tensors["output"] = y.size() == 2 ? at::add(y[0], y[1]) : y[0];
  const size_t parts = std::exchange(y, {}).size();  // the next unit has dropped them
  const int64_t between = CountedMemory::most = CountedMemory::alive.load();
  const Tensors dx = unit->backward(parts == 2 ? Tensors{dy, dy} : Tensors{dy}, ctx, saved);
  // The plan counts dy.
  passed.working = std::max(forward, static_cast<double>(CountedMemory::most - between) + stream);
  passed.said = host.log.lines;
  passed.tensors["dx"] = dx[0], passed.tensors["ddelta"] = dx[1];
  for (const ParamPtr& param : unit->params()) passed.tensors[param->name] = param->grad;
  return passed;
}

inline BlockSpec llama() {
  BlockSpec s;
  s.name = "block.0", s.hidden = 24, s.ffn = 40, s.heads = 4, s.kv_heads = 2, s.head_dim = 8;
  s.rms = true, s.bias = s.qkv_bias = s.proj_bias = false, s.activation = "swiglu";
  s.rotary = true, s.rotary_frequencies = {1, 0.3, 0.1, 0.03};
  return s;
}

struct Switch {
  const char* name;
  void (*set)(BlockSpec&);
};
inline const Switch kSwitches[] = {
    {"nothing", [](BlockSpec&) {}},
    {"qk_norm head (Qwen3)", [](BlockSpec& s) { s.qk_norm = NormOver::head; }},
    {"qk_norm head with biases", [](BlockSpec& s) { s.qk_norm = NormOver::head, s.qkv_bias = true; }},
    {"qk_norm head without rotary", [](BlockSpec& s) { s.qk_norm = NormOver::head, s.rotary = false; }},
    {"qk_norm heads", [](BlockSpec& s) { s.qk_norm = NormOver::heads; }},
    {"partial rotary",
     [](BlockSpec& s) {
       s.rotary_frequencies = {1, 0.1, 0.03};
     }},
    {"rotary scale", [](BlockSpec& s) { s.rotary_scale = 1.3; }},
    {"partial rotary behind norms",
     [](BlockSpec& s) {
       s.qk_norm = NormOver::head, s.rotary_frequencies = {1, 0.1}, s.rotary_scale = 0.7;
     }},
    {"offset", [](BlockSpec& s) { s.norm_offset = 1; }},
    {"no gain", [](BlockSpec& s) { s.norm_gain = false; }},
    {"layer norm without gain and bias", [](BlockSpec& s) { s.rms = s.norm_gain = s.norm_bias = false; }},
    {"layer norm without bias", [](BlockSpec& s) { s.rms = s.norm_bias = false; }},
    {"norms after", [](BlockSpec& s) { s.norms = NormPlacement::after; }},
    {"norms both", [](BlockSpec& s) { s.norms = NormPlacement::both; }},
    {"parallel", [](BlockSpec& s) { s.parallel = true; }},
    {"parallel with norms after", [](BlockSpec& s) { s.parallel = true, s.norms = NormPlacement::after; }},
    {"attention scale", [](BlockSpec& s) { s.attention_scale = 0.11; }},
    {"softcap", [](BlockSpec& s) { s.attention_softcap = 1.5; }},
    {"window", [](BlockSpec& s) { s.window = 2; }},
    {"residual scale", [](BlockSpec& s) { s.residual_scale = 0.22; }},
    {"proj bias", [](BlockSpec& s) { s.proj_bias = true; }},
    {"biases of the MLP only", [](BlockSpec& s) { s.bias = true; }},
    {"silu", [](BlockSpec& s) { s.activation = "silu", s.bias = true; }},
    {"relu", [](BlockSpec& s) { s.activation = "relu"; }},
    {"geglu", [](BlockSpec& s) { s.activation = "geglu"; }},
    {"geglu_tanh", [](BlockSpec& s) { s.activation = "geglu_tanh"; }},
    {"reglu", [](BlockSpec& s) { s.activation = "reglu"; }},
    {"OLMo 2", [](BlockSpec& s) { s.norms = NormPlacement::after, s.qk_norm = NormOver::heads; }},
    {"Gemma 2",
     [](BlockSpec& s) {
       s.norms = NormPlacement::both, s.norm_offset = 1, s.activation = "geglu_tanh", s.attention_scale = 0.2;
       s.attention_softcap = 2, s.window = 3;
     }},
    {"Gemma 3",
     [](BlockSpec& s) {
       s.norms = NormPlacement::both, s.norm_offset = 1, s.activation = "geglu_tanh", s.qk_norm = NormOver::head;
     }},
};

}  // namespace drivetrain::test
