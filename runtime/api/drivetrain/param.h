// A named parameter of the model. A layer creates it on the meta device. The storage owner gives it memory in `attach`;
// that is the data-parallel strategy, or the runtime if there is none.
//
// Invariant: between the before and after hooks of a unit's visit (strategy.h) each of its parameters has all its
// values (of this rank's tensor-parallel slice). Outside these hooks only the storage owner may touch them. Thread:
// main; write_grad also on autograd's.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <drivetrain/layout.h>

DRIVETRAIN_CONTRACT(param)

namespace drivetrain {

using Tensors = std::vector<at::Tensor>;

// Initial values are a function of (seed, parameter name, global index), so every topology starts from the same
// weights.
struct InitRule {
  enum class Kind { zeros, ones, normal, uniform } kind = Kind::zeros;
  double std = 0;  // of `normal`; of `uniform` the bound: values lie between -bound and bound
  static InitRule zeros() { return {}; }
  static InitRule ones() { return {Kind::ones, 0}; }
  static InitRule normal(double std) { return {Kind::normal, std}; }
  static InitRule uniform(double bound) { return {Kind::uniform, bound}; }
};

// What a parameter is in the model, whoever made it. Optimizers, precisions and the config's `param_groups` choose by
// it.
enum class ParamRole { matrix, bias, norm, embedding, output, router, expert, adapter };
DRIVETRAIN_API const char* role_name(ParamRole role);  // "matrix", ...

struct DRIVETRAIN_API Param {
  Param(std::string name, Layout layout, InitRule init);

  std::string name;  // "block.7.attn.qkv.weight": the same in every topology
  Layout layout;
  InitRule init;
  // Set by the layer that creates it. `bias`: of a linear layer; `norm`: gain or bias of a normalisation; `embedding`:
  // also where the output layer is tied to it; `output`: the output layer's own weight.
  ParamRole role = ParamRole::matrix;
  // Sizes, in rows of the whole parameter, of the matrices that dimension 0 is fused of (q, k, v), however it is cut;
  // empty: it is one matrix. Set by the layer that creates it.
  std::vector<int64_t> blocks;
  // False: it is frozen. It has no gradient slot, and no gradient is reduced, no state kept and no update made for it.
  // Set before `attach`: by layers, in Strategy::build, and by the config's `param_groups`.
  bool trainable = true;
  // Other pipeline stages update copies of it. Set by the runtime before `attach`. Storage owners give such a parameter
  // a bucket of its own.
  bool tied_over_stages = false;
  // The mesh axes over which storage owners sum its gradient. Set by the layer that creates it, before `attach`.
  // Not set: every axis with Axis::joins_gradients that does not split a dimension of the layout. So an expert's
  // weight, of which each rank along "ep" holds some rows (`layout.dims[0].axes = {"ep"}`), is summed over the other
  // data axes only. A layer sets the axes itself if its backward pass already sums the gradient along one of them.
  // Parameters with different reduction axes are never in one bucket.
  std::optional<std::vector<std::string>> reduction_axes;

  at::Tensor tensor;  // the autograd leaf that units compute with, local shape; defined after attach
  // The gradient slot: a view of the storage owner's memory in the gradient dtype, local shape. Valid from before_grads
  // to after_backward. Write to it through write_grad or accumulate_grad only.
  at::Tensor grad;

  // Call this to write a gradient. If `add`, add the gradient to `slot`; otherwise overwrite the slot. After the call
  // has_grad() is true.
  struct GradWrite {
    at::Tensor slot;
    bool add;
  };
  GradWrite write_grad() { return {grad, std::exchange(has_grad_, true)}; }
  // The next gradient overwrites the slot. The runtime calls it after every update; a strategy calls it when it has
  // read the gradients of some micro-batches of a step.
  void restart_grad() { has_grad_ = false; }
  bool has_grad() const { return has_grad_; }  // whether a gradient was written since restart_grad
  // Fills the slot with zeros if !has_grad(). The runtime calls it before after_backward.
  void complete_grad();

 private:
  bool has_grad_ = false;
};
using ParamPtr = std::shared_ptr<Param>;

// The axes of `mesh`, of size 2 or more, over which the gradient of `param` is summed, in the order of the mesh. Throws
// Error(plugin) if Param::reduction_axes names an axis that does not join gradients or that splits the layout.
DRIVETRAIN_API std::vector<std::string> reduction_axes(const Param& param, const Mesh& mesh);

// Overwrites the slot with `gradient` or adds to it, as Param::write_grad says. Same shape; any floating dtype.
DRIVETRAIN_API void accumulate_grad(Param& param, const at::Tensor& gradient);

}  // namespace drivetrain
