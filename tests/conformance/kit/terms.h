// Layers with a term of their own, for suites: every linear layer and every embedding of the factory inside gets two
// vectors a [in], b [out], and adds b (a . x), or b a[id]. A run in which a layer loses it, or its gradients, has other
// figures. Legend: N rows, I in, O out.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <drivetrain/toolkit/layers/decorated_layers.h>
#include <drivetrain/toolkit/units/differentiable.h>

namespace drivetrain::test {

// The vector of dimension `dim` of a matrix, cut as that; where the other dimension is cut, its gradient is a part.
inline ParamPtr term_vector(const std::string& name, const Layout& matrix, size_t dim, ParamRole role) {
  Layout layout = Layout::whole({matrix.global_shape.at(dim)});
  if (!matrix.dims.empty()) {
    if (!matrix.dims.at(dim).axes.empty()) layout.dims = {matrix.dims.at(dim)};
    layout.partial_over = matrix.dims.at(1 - dim).axes;
  }
  auto param = std::make_shared<Param>(name, std::move(layout), InitRule::normal(0.5));
  param->role = role;
  return param;
}

inline std::vector<ParamPtr> with_vectors(std::vector<ParamPtr> all, const ParamPtr& a, const ParamPtr& b) {
  all.push_back(a), all.push_back(b);
  return all;
}

inline at::Tensor rows_of(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }
inline at::Tensor as_column(const at::Tensor& vector) { return vector.detach().unsqueeze(1); }

inline void add_gradient(const ParamPtr& param, const at::Tensor& column) {
  if (param->trainable) accumulate_grad(*param, column.reshape({-1}));
}

class TermLinear : public Linear {
 public:
  TermLinear(std::shared_ptr<Linear> inner, const LinearSpec& spec, ParamRole role)
      : inner_(std::move(inner)),
        a_(term_vector(spec.name + ".term_a", weight_layout(spec), 1, role)),
        b_(term_vector(spec.name + ".term_b", weight_layout(spec), 0, role)) {}
  std::vector<ParamPtr> params() const override { return with_vectors(inner_->params(), a_, b_); }
  ParamPtr bias() const override { return inner_->bias(); }
  bool keeps_input() const override { return inner_->keeps_input(); }

  at::Tensor apply(const at::Tensor& x, const Options& options, at::Tensor* kept) const override {
    const at::AutoGradMode off(false);
    const at::Tensor y = inner_->apply(x, options, kept);
    return rows_of(y).add(at::mm(rows_of(x), as_column(a_->tensor)) * b_->tensor.detach()).view(y.sizes());
  }

  // The values may be gone when the work is done: it holds a copy.
  at::Tensor apply_backward(const at::Tensor& dy, const at::Tensor& x, const Options& options,
                            WeightWork& work) const override {
    const at::AutoGradMode off(false);
    at::Tensor dx = inner_->apply_backward(dy, x, options, work);
    const at::Tensor dy_NO = rows_of(dy), dh_N1 = at::mm(dy_NO, as_column(b_->tensor));
    if (dx.defined()) dx = rows_of(dx).add(dh_N1 * a_->tensor.detach()).view(dx.sizes());
    work.run([a = a_, b = b_, a_I1 = as_column(a_->tensor).clone(), dy_NO, dh_N1, x] {
      add_gradient(a, at::mm(rows_of(x).t(), dh_N1));
      add_gradient(b, at::mm(dy_NO.t(), at::mm(rows_of(x), a_I1)));
    });
    return dx;
  }

 private:
  const std::shared_ptr<Linear> inner_;
  const ParamPtr a_, b_;
};

class TermEmbedding : public Embedding {
 public:
  TermEmbedding(std::shared_ptr<Embedding> inner, const EmbeddingSpec& spec, ParamRole role)
      : inner_(std::move(inner)),
        a_(term_vector(spec.name + ".term_a", weight_layout(spec), 0, role)),
        b_(term_vector(spec.name + ".term_b", weight_layout(spec), 1, role)) {}
  std::vector<ParamPtr> params() const override { return with_vectors(inner_->params(), a_, b_); }

  at::Tensor forward(const at::Tensor& ids, StepContext& ctx) override {
    const at::Tensor base = inner_->forward(ids, ctx), flat = ids.reshape({-1});
    const int64_t count = a_->tensor.size(0);
    const at::Tensor own = at::bitwise_and(flat.ge(0), flat.lt(count)).to(a_->tensor.scalar_type());
    const at::Tensor rows = flat.clamp(0, count - 1);
    const auto looked_up = [a = a_, own, rows] {
      return a->tensor.detach().index_select(0, rows).mul(own).unsqueeze(1);
    };
    const at::Tensor term = differentiable(
        {a_->tensor, b_->tensor},
        [&](const Tensors&) { return Tensors{(looked_up() * b_->tensor.detach()).view(base.sizes())}; },
        [=, a = a_, b = b_](const Tensors& dy) {
          const at::Tensor dy_NO = rows_of(dy[0]), dh_N1 = at::mm(dy_NO, as_column(b->tensor));
          at::Tensor da = at::zeros({count}, dy_NO.options());
          da.index_add_(0, rows, dh_N1.squeeze(1).mul(own));
          add_gradient(a, da);
          add_gradient(b, at::mm(dy_NO.t(), looked_up()));
          return Tensors(2);
        })[0];
    return at::add(base, term);
  }

 private:
  const std::shared_ptr<Embedding> inner_;
  const ParamPtr a_, b_;
};

class TermLayers : public DecoratedLayers {
 public:
  explicit TermLayers(std::shared_ptr<LayerFactory> inner, ParamRole role = ParamRole::adapter)
      : DecoratedLayers(std::move(inner)), role_(role) {}
  std::shared_ptr<Linear> linear(const LinearSpec& spec) override {
    return std::make_shared<TermLinear>(DecoratedLayers::linear(spec), spec, role_);
  }
  std::shared_ptr<Embedding> embedding(const EmbeddingSpec& spec) override {
    return std::make_shared<TermEmbedding>(DecoratedLayers::embedding(spec), spec, role_);
  }

 private:
  const ParamRole role_;
};

}  // namespace drivetrain::test
