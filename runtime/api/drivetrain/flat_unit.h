// The parameters of one unit in one flat buffer each for values and gradients. What ddp, ZeRO and FSDP are written on: it holds
// the rules for views, storage and slots, so that no plugin repeats them. Owned by a storage owner. Thread: main.
//
// Every parameter begins on a multiple of kNormBlock elements, so that norms add the same fixed blocks however the flat buffer
// is cut; the gap between is zero and never read by units.
#pragma once

#include <functional>

#include <drivetrain/optimizer.h>
#include <drivetrain/services.h>
#include <drivetrain/unit.h>

namespace drivetrain {

// Elements per partial sum of a norm; partial sums are added in order of parameter and block.
inline constexpr int64_t kNormBlock = 1024;

struct FlatOptions {
  Dtypes dtypes;  // where master differs from param, trainables get values of their own and `working` is the parameter
  at::Device device = at::Device(at::kCPU);
  int64_t shards = 1;                                               // the flat length is a multiple of shards * kNormBlock
  // Where the buffers come from: a group's own memory for what it moves. Empty: at::empty.
  std::function<at::Tensor(int64_t, at::ScalarType)> allocate_values, allocate_grads;
};

class DRIVETRAIN_API FlatUnit {
 public:
  // Sets tensor, and for trainable ones grad, of every parameter in `params` to views of the flat buffers. Values are
  // undefined until the runtime fills them; gaps are zero. Shapes are the local ones of `mesh`.
  FlatUnit(std::vector<ParamPtr> params, const Mesh& mesh, const FlatOptions& options);

  const std::vector<ParamPtr>& params() const { return params_; }
  int64_t numel() const { return numel_; }      // with gaps
  at::Tensor values() const { return values_; }  // [numel]
  at::Tensor grads() const { return grads_; }    // [numel]
  int64_t offset(size_t i) const { return offsets_[i]; }  // of params()[i] in the flat buffers

  // Zeroes the slots nobody wrote in this step (unused parameters), so that the flat gradient can be reduced.
  void settle_grads();

  // Frees the values' memory and gets it back (contents undefined), below live saved views; parameters keep their identity.
  void release();
  void fill();
  bool released() const { return released_; }

  // One trainable per trainable parameter, whole. Also while the values are released.
  const Trainables& trainables() const { return trainables_; }

 private:
  void add_trainable(size_t i, int64_t count);

  std::vector<ParamPtr> params_;
  std::vector<int64_t> offsets_;
  int64_t numel_ = 0;
  at::Tensor values_, grads_, masters_;  // masters_ undefined where the values are their own
  Trainables trainables_;
  bool released_ = false;
};

}  // namespace drivetrain
