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
  // The gradient slot: a view in the gradient dtype, local shape, owned by the storage owner,
  // valid inside a backward span.
  // If `grad_fresh`, whoever writes the next gradient overwrites and clears the flag; else it adds.
  // The runtime sets it at the beginning of a step; a strategy that reduces every micro-batch sets it again.
  at::Tensor grad;
  bool grad_fresh = true;
  uint64_t version = 0;  // counts updates; caches of casts key on it
};
using ParamPtr = std::shared_ptr<Param>;

// The axes of `mesh` with several ranks over which the gradient of `param` is summed, in the order of the mesh.
// Throws Error(plugin) if the parameter names an axis that does not join gradients or that cuts its layout.
DRIVETRAIN_API std::vector<std::string> reduction_axes(const Param& param, const Mesh& mesh);

// Writes or adds `gradient` into the param's slot as grad_fresh says. Same shape; any floating dtype.
DRIVETRAIN_API void accumulate_grad(Param& param, const at::Tensor& gradient);

}  // namespace drivetrain
