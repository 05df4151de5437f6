// A layer in 8 bits, with weights to compute with.
#pragma once

#include <ATen/ops/zeros.h>

#include <drivetrain/toolkit/layers/linear.h>
#include <drivetrain/toolkit/layers/plain_layers.h>

#include <memory>

#include "linear.h"
#include "scaling.h"
#include "test_numbers.h"

namespace drivetrain::test {

struct Layer {
  explicit Layer(const Recipe& recipe, int64_t in = 32, int64_t out = 48) : scaling(std::make_shared<Scaling>(recipe)) {
    LinearSpec spec;
    spec.name = "fc", spec.in = in, spec.out = out;
    linear = make_layers(make_plain_layers(nullptr), scaling)->linear(spec);
    weight = linear->params()[0], bias = linear->params()[1];
    weight->tensor = numbers({out, in}, 5, 0.02).to(at::kBFloat16), bias->tensor = numbers({out}, 6).to(at::kBFloat16);
    weight->grad = at::zeros({out, in}), bias->grad = at::zeros({out});
    scaling->attach({"fc"}, nullptr, nullptr, at::Device(at::kCPU));
  }
  at::Tensor forward(const at::Tensor& x) const { return linear->apply(x, {}, nullptr); }
  at::Tensor backward(const at::Tensor& dy, const at::Tensor& x) const {
    WeightWork work;
    return linear->apply_backward(dy, x, {}, work);
  }
  ScalingPtr scaling;
  std::shared_ptr<Linear> linear;
  ParamPtr weight, bias;
};

}  // namespace drivetrain::test
