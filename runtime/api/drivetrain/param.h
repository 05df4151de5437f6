// A named parameter of the model. Created by layers on the meta device;
// a storage owner (the data-parallel strategy, or the runtime where there is none) gives it memory in `attach`.
//
// Invariant: between before_X(unit) and after_X(unit) every parameter of the unit is usable in full (for this rank's
// tensor-parallel slice); outside that span nobody may touch it. Thread: main.
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

// Initial values are a function of (seed, parameter name, global index),
// so every topology starts from the same weights.
struct InitRule {
  enum class Kind { zeros, ones, normal } kind = Kind::zeros;
  double std = 0;
  static InitRule zeros() { return {}; }
  static InitRule ones() { return {Kind::ones, 0}; }
  static InitRule normal(double std) { return {Kind::normal, std}; }
};

struct DRIVETRAIN_API Param {
  Param(std::string name, Layout layout, InitRule init);

  std::string name;  // "block.7.attn.qkv.weight": stable over every topology
  Layout layout;
  InitRule init;
  bool trainable = true;
  bool norm = false;  // gain or bias of a normalisation
  bool embedding = false;
  // other pipeline stages update copies of it: storage owners give it a bucket of its own
  bool tied_over_stages = false;
  // The mesh axes over which storage owners sum its gradient. Set by the layer that creates it, before `attach`.
  // Nothing: every axis that joins gradients and cuts no dimension of its layout. So an expert's weight, of which each
  // rank along "ep" holds some rows (`layout.dims[0].axes = {"ep"}`), is summed over the other data axes only, and a
  // weight that every rank holds is summed over all of them. A layer names axes itself where its backward pass makes
  // whole gradients along one of them already. Parameters with different reduction axes never share a bucket.
  std::optional<std::vector<std::string>> reduction_axes;

  at::Tensor tensor;  // the leaf that units compute with, local shape; defined after attach
  // The gradient slot: a view in the gradient dtype, local shape, owned by the storage owner, which sets it;
  // valid from before_grads to after_backward. Written by way of write_grad.
  at::Tensor grad;

  // For whoever writes a gradient: overwrite the slot unless `add`. From here on the slot holds a gradient.
  struct GradWrite {
    at::Tensor slot;
    bool add;
  };
  GradWrite write_grad() { return {grad, std::exchange(has_grad_, true)}; }
  // The next gradient overwrites the slot. The runtime says so after every update; so does a strategy that has taken
  // the gradients of a part of a step.
  void restart_grad() { has_grad_ = false; }
  bool has_grad() const { return has_grad_; }  // since then
  // Zeros, if no gradient was written since then.
  void complete_grad();

  // Counts updates: caches of casts go by it.
  uint64_t version() const { return version_; }
  void count_update() { ++version_; }

 private:
  bool has_grad_ = false;
  uint64_t version_ = 0;
};
using ParamPtr = std::shared_ptr<Param>;

// The axes of `mesh` with several ranks over which the gradient of `param` is summed, in the order of the mesh.
// Throws Error(plugin) if the parameter names an axis that does not join gradients or that cuts its layout.
DRIVETRAIN_API std::vector<std::string> reduction_axes(const Param& param, const Mesh& mesh);

// Writes or adds `gradient` into the param's slot as Param::write_grad says. Same shape; any floating dtype.
DRIVETRAIN_API void accumulate_grad(Param& param, const at::Tensor& gradient);

}  // namespace drivetrain
