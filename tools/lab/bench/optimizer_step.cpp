#include "bench/optimizer_step.h"

#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include <drivetrain/toolkit/text.h>

namespace drivetrain {

OptimizerPieces::OptimizerPieces(int64_t elements, const std::vector<int64_t>& shape, const at::Device& device) {
  const at::TensorOptions options = at::TensorOptions(at::kFloat).device(device);
  value = at::rand({elements}, options), grad = at::rand({elements}, options);
  int64_t whole = 1;
  for (const int64_t size : shape) whole *= size;
  for (int64_t begin = 0; begin < elements; begin += whole) {
    const int64_t n = std::min(whole, elements - begin);
    Trainable t;
    t.param = std::make_shared<Param>(concat("piece.", begin / whole),
                                      Layout::whole(n == whole ? shape : std::vector<int64_t>{n}), InitRule::zeros());
    t.layout = t.param->layout;
    t.value = t.working = value.narrow(0, begin, n);
    t.grad = grad.narrow(0, begin, n);
    chunk.push_back(t);
  }
}

std::vector<ParamPtr> OptimizerPieces::params() const {
  std::vector<ParamPtr> list;
  for (const Trainable& t : chunk) list.push_back(t.param);
  return list;
}

OptimizerStep::OptimizerStep(std::shared_ptr<Optimizer> optimizer, const OptimizerPieces& pieces,
                             const at::Device& device)
    : optimizer_(std::move(optimizer)),
      chunks_{pieces.chunk},
      mesh_({}, 0, 1, nullptr),
      norm_(chunks_, pieces.params(), mesh_, device) {
  for (Trainable& t : chunks_[0]) t.group = optimizer_->group_of(*t.param);
  optimizer_->init(chunks_[0]);
  const auto on = [&](at::ScalarType type) { return at::TensorOptions(type).device(device); };
  const std::vector<Hyper> groups = optimizer_->groups();
  at::Tensor hyper = at::zeros({static_cast<int64_t>(groups.size()), 3}, at::TensorOptions(at::kDouble));
  double* row = hyper.mutable_data_ptr<double>();
  for (const Hyper& h : groups) *row++ = h.lr, *row++ = h.weight_decay, *row++ = h.momentum;
  args_.hyper = hyper.to(device);
  args_.grad_scale = at::full({}, 1.0, on(at::kDouble));
  squares_ = at::zeros({}, on(at::kDouble));
  args_.skip = at::zeros({}, on(at::kBool)), args_.step = at::zeros({}, on(at::kLong));
}

void OptimizerStep::norm() {
  norm_.sum_of_squares(chunks_, squares_);
  const double norm = std::sqrt(squares_.item<double>());
  args_.grad_scale.fill_(norm > 1 ? 1 / norm : 1.0);
}

void OptimizerStep::update() {
  optimizer_->update(chunks_[0], args_);
  for (const Trainable& t : chunks_[0]) t.param->restart_grad();  // the next gradient overwrites: nothing is zeroed
  args_.step.add_(1);
}

}  // namespace drivetrain
