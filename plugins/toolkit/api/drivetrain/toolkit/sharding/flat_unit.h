// Parameters in flat buffers, complete or sharded into equal parts over ranks. Data-parallel strategies are written
// with it: it has the rules for views, storage, gradient slots and parts. Owned by the storage owner. Thread: main.
//
// Every parameter and every part begins on a multiple of kNormBlock elements, so that norms add the same blocks however
// the flat buffer is sharded. The gaps are zero; units never read them.
#pragma once

#include <functional>
#include <limits>

#include <drivetrain/data_parallel.h>
#include <drivetrain/optimizer.h>
#include <drivetrain/services.h>
#include <drivetrain/unit.h>

namespace drivetrain {

struct FlatOptions {
  Dtypes dtypes;  // if master and param differ, trainables have master weights, and `working` is the parameter
  at::Device device = at::Device(at::kCPU);
  int64_t shards = 1, shard = 0;        // number of equal parts, and the index of this rank's part
  std::vector<std::string> shard_axes;  // the mesh axes over which the parts are distributed
  bool part_values = false;             // the part's values have their own memory, so that values() can be released
  bool part_grads = false;              // the part's gradients have their own memory
  bool temporary_grads = false;  // grads() has memory only between attach_grads and detach_grads; needs part_grads
  int64_t chunk = std::numeric_limits<int64_t>::max();  // largest number of elements per list of trainables
  // host_state: the trainables' values, and a copy of the part's gradients, are in host memory. host_values:
  // part_values() is in host memory (needs part_values).
  bool host_state = false, host_values = false;
  bool pinned = true;  // that host memory is page-locked
  // The allocators of the buffers (Group::allocate). Empty: at::empty; needed for a buffer that will be released.
  using Allocate = std::function<at::Tensor(int64_t, at::ScalarType)>;
  Allocate allocate_values, allocate_part_values, allocate_grads;
};

class FlatUnit {
 public:
  // Sets Param::tensor, and Param::grad of trainable ones, to views of the flat buffers, with their local shapes on
  // `mesh`. Values are uninitialised until the runtime fills them; gaps are zero. If no parameter is trainable, there
  // are no gradients and no master weights.
  FlatUnit(std::vector<ParamPtr> params, const Mesh& mesh, const FlatOptions& options);

  // The number of elements, with gaps, that the flat buffers of `params` would have.
  static int64_t numel_of(const std::vector<ParamPtr>& params, const Mesh& mesh, int64_t shards);

  const std::vector<ParamPtr>& params() const { return params_; }
  int64_t numel() const { return numel_; }                // with gaps
  int64_t part_numel() const { return part_numel_; }      // numel() / shards
  int64_t offset(size_t i) const { return offsets_[i]; }  // of params()[i] in the flat buffers

  at::Tensor values() const { return values_; }  // [numel]
  // [part_numel]: a slice of values(), or its own memory with FlatOptions::part_values
  at::Tensor part_values() const { return part_values_; }
  at::Tensor grads() const { return grads_; }            // [numel]; temporary_grads: undefined while none is attached
  at::Tensor part_grads() const { return part_grads_; }  // [part_numel]; a slice of grads(), or its own memory

  // Makes `buffer`, [numel()] of the gradient dtype, the memory of grads() and of the slots, and zeroes its gaps.
  // detach_grads ends this: the slots are undefined then.
  void attach_grads(const at::Tensor& buffer);
  void detach_grads();

  // With FlatOptions::host_state: starts the copy of the part's gradients to the host. The caller synchronises the
  // device before it reads the copy. Otherwise does nothing.
  void copy_grads_to_host();
  bool has_host_grads() const { return host_grads_.defined(); }

  // Zeroes the slots without a gradient (Param::has_grad; unused parameters), so that grads() can be reduced.
  void zero_unwritten_grads();

  // release frees the memory of values(); fill allocates it again, with undefined contents. Tensors and views, also
  // those that autograd saved, stay valid objects over the same storage.
  void release();
  void fill();
  bool released() const { return released_; }

  // What this rank updates, as lists for DataParallel::trainables: every trainable parameter at least once. If none is
  // trainable: what this rank holds, for DataParallel::frozen.
  const std::vector<Trainables>& pieces() const { return pieces_; }
  const Trainables& trainables() const {
    return pieces_.front();
  }  // all, unless FlatOptions::chunk gives several lists

 private:
  void lay_out(const Mesh& mesh, const FlatOptions& options);
  void allocate(const FlatOptions& options);
  void cut(const FlatOptions& options);
  Trainable piece(size_t i, int64_t begin, int64_t end, const FlatOptions& options) const;
  void point_slots();
  void zero_gaps(const at::Tensor& flat, int64_t begin) const;

  std::vector<ParamPtr> params_;
  std::vector<int64_t> offsets_, counts_;
  std::vector<std::vector<int64_t>> shapes_;
  int64_t numel_ = 0, part_numel_ = 0, part_begin_ = 0;
  bool trainable_ = false;  // any of them
  at::Tensor values_, grads_, part_values_, part_grads_;
  at::Tensor part_masters_;  // undefined if the values are float32 themselves
  at::Tensor host_grads_;    // undefined without host_state
  std::vector<Trainables> pieces_;
  bool released_ = false;
};

}  // namespace drivetrain
