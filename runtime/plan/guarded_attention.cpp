#include "plan/guarded_attention.h"

#include <drivetrain/error.h>

#include "plugin_calls/plugin_call.h"
#include "plugin_calls/tensor_check.h"

namespace drivetrain {
namespace {

void expect_tensor(const char* name, const at::Tensor& found, at::IntArrayRef sizes, at::ScalarType dtype,
                   const at::Tensor& like) {
  const std::string problem = tensor_problem(found, {sizes, dtype, like.device()});
  if (!problem.empty()) throw fail(ErrorCode::plugin, "returned a wrong ", name, ": ", problem);
}

void check_forward(const AttentionState& state, const at::Tensor& q, bool returns_lse) {
  expect_tensor("out", state.out, q.sizes(), q.scalar_type(), q);
  if (!returns_lse) return;
  const int64_t sizes[] = {q.size(0), q.size(2), q.size(1)};
  expect_tensor("lse", state.lse, sizes, q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat, q);
}

// One that keeps none of its inputs in the state has shapes of its own to go by.
void check_backward(const Tensors& gradients, const AttentionState& state) {
  if (gradients.size() != 3)
    throw fail(ErrorCode::plugin, "wanted three tensors, dq, dk and dv; found ", gradients.size());
  const std::pair<const char*, const at::Tensor*> inputs[] = {{"dq", &state.q}, {"dk", &state.k}, {"dv", &state.v}};
  for (size_t i = 0; i < 3; ++i) {
    const auto& [name, input] = inputs[i];
    if (!gradients[i].defined()) throw fail(ErrorCode::plugin, "returned a wrong ", name, ": found no tensor");
    if (input->defined()) expect_tensor(name, gradients[i], input->sizes(), input->scalar_type(), *input);
  }
}

}  // namespace

GuardedAttention::GuardedAttention(std::string id, std::shared_ptr<Attention> inner)
    : id_(std::move(id)), inner_(std::move(inner)), returns_lse_(abilities().returns_lse) {}

AttentionAbilities GuardedAttention::abilities() const {
  return plugin_call({id_, "abilities"}, [&] { return inner_->abilities(); });
}

AttentionState GuardedAttention::forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                         const AttentionArgs& args) const {
  return plugin_call({id_, "forward"}, [&] {
    AttentionState state = inner_->forward(q, k, v, args);
    check_forward(state, q, returns_lse_);
    return state;
  });
}

AttentionMemory GuardedAttention::memory(const AttentionShape& shape) const {
  return plugin_call({id_, "memory"}, [&] { return inner_->memory(shape); });
}

Tensors GuardedAttention::backward(const at::Tensor& dout, const AttentionState& state,
                                   const AttentionArgs& args) const {
  return plugin_call({id_, "backward"}, [&] {
    Tensors gradients = inner_->backward(dout, state, args);
    check_backward(gradients, state);
    return gradients;
  });
}

}  // namespace drivetrain
