#include "step/grad_sums.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

// Where the gradient was made.
at::Tensor made_grad(const Trainable& t) { return t.device_grad.defined() ? t.device_grad : t.grad; }

std::vector<std::string> partial_axes(const Trainable& t, const Mesh& mesh) {
  std::vector<std::string> axes;
  for (const std::string& axis : t.layout.partial_over)
    if (mesh.size(axis) > 1) axes.push_back(axis);
  std::sort(axes.begin(), axes.end());
  return axes;
}

}  // namespace

GradSums::GradSums(const std::vector<Trainables>& chunks, const Mesh& mesh,
                   const std::map<std::string, GroupPtr>& tied) {
  for (const auto& [name, group] : tied)
    if (group->size() > 1) tied_[name].group = group;
  for (const Trainables& chunk : chunks) {
    for (const Trainable& t : chunk) {
      if (t.grad.numel() == 0) continue;
      const bool partial = !partial_axes(t, mesh).empty();
      const auto copies = tied_.find(t.param->name);
      if (partial) add_partial(t, mesh);
      if (copies != tied_.end()) copies->second.grads.push_back(made_grad(t));
      if ((partial || copies != tied_.end()) && t.device_grad.defined()) copies_.push_back({t.device_grad, t.grad});
    }
  }
  for (auto& [axes, partial] : partials_) {
    int64_t numel = 0;
    for (const at::Tensor& grad : partial.grads) numel += grad.numel();
    // Sums of narrow numbers would round at each addition.
    const at::ScalarType type = partial.grads.front().scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    partial.buffer = at::empty({numel}, partial.grads.front().options().dtype(type));
  }
}

void GradSums::add_partial(const Trainable& t, const Mesh& mesh) {
  const std::vector<std::string> axes = partial_axes(t, mesh);
  Shared& partial = partials_[axes];
  if (!partial.group) partial.group = mesh.group(axes);
  partial.grads.push_back(made_grad(t));
}

void GradSums::run() {
  sum_partials();
  sum_tied();
  for (const Copy& copy : copies_) at::Tensor(copy.to).copy_(copy.from, /*non_blocking=*/true);
}

void GradSums::sum_partials() {
  std::vector<WorkPtr> works;
  for (const auto& [axes, partial] : partials_) {
    int64_t at = 0;
    for (const at::Tensor& grad : partial.grads) {
      partial.buffer.narrow(0, at, grad.numel()).copy_(grad);
      at += grad.numel();
    }
    works.push_back(partial.group->all_reduce(partial.buffer));
  }
  size_t i = 0;
  for (const auto& [axes, partial] : partials_) {
    works[i++]->wait();
    int64_t at = 0;
    for (const at::Tensor& grad : partial.grads) {
      at::Tensor(grad).copy_(partial.buffer.narrow(0, at, grad.numel()));
      at += grad.numel();
    }
  }
}

// In place: a copy may be as large as the vocabulary.
void GradSums::sum_tied() {
  std::vector<WorkPtr> works;
  for (const auto& [name, tied] : tied_)
    for (const at::Tensor& grad : tied.grads) works.push_back(tied.group->all_reduce(grad));
  for (const WorkPtr& work : works) work->wait();
}

}  // namespace drivetrain
