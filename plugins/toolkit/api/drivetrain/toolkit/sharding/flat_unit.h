// Parameters in flat buffers, whole or cut into equal parts over ranks.
// What data-parallel strategies are written on: it holds the rules for views, storage, slots and parts, so that no
// plugin repeats them. Owned by a storage owner. Thread: main.
//
// Every parameter begins on a multiple of kNormBlock elements and so does every part,
// so that norms add the same fixed blocks however the flat buffer is cut;
// the gap between is zero and never read by units.
#pragma once

#include <functional>
#include <limits>

#include <drivetrain/data_parallel.h>
#include <drivetrain/optimizer.h>
#include <drivetrain/services.h>
#include <drivetrain/unit.h>

namespace drivetrain {

struct FlatOptions {
  Dtypes dtypes;  // where master differs from param, trainables get values of their own and `working` is the parameter
  at::Device device = at::Device(at::kCPU);
  int64_t shards = 1, shard = 0;        // equal parts, and which of them this rank holds
  std::vector<std::string> shard_axes;  // the mesh axes that share them
  bool part_values = false;             // the part's values have memory of their own: the whole ones may be released
  bool part_grads = false;              // so do its gradients
  bool lent_grads = false;              // whole gradients have no memory but what is lent; wants part_grads
  int64_t chunk = std::numeric_limits<int64_t>::max();  // elements per list of trainables
  // The host's memory keeps what trainables are made of: their values, and copies of the part's gradients;
  // respectively the part of the values that units' whole ones are gathered from (wants part_values).
  bool host_state = false, host_values = false;
  bool pinned = true;  // that memory is page-locked
  // Where the buffers come from: a group's own memory for what it moves.
  // Empty: at::empty, as what is to be released has to be.
  using Allocate = std::function<at::Tensor(int64_t, at::ScalarType)>;
  Allocate allocate_values, allocate_part_values, allocate_grads;
};

class FlatUnit {
 public:
  // Sets tensor, and for trainable ones grad, of every parameter in `params` to views of the flat buffers.
  // Values are undefined until the runtime fills them; gaps are zero. Where none is trainable there are no gradients
  // and no masters. Shapes are the local ones of `mesh`.
  FlatUnit(std::vector<ParamPtr> params, const Mesh& mesh, const FlatOptions& options);

  // Elements of the flat buffers that these would get, with gaps.
  static int64_t numel_of(const std::vector<ParamPtr>& params, const Mesh& mesh, int64_t shards);

  const std::vector<ParamPtr>& params() const { return params_; }
  int64_t numel() const { return numel_; }                // with gaps
  int64_t part_numel() const { return part_numel_; }      // numel() / shards
  int64_t offset(size_t i) const { return offsets_[i]; }  // of params()[i] in the flat buffers

  at::Tensor values() const { return values_; }  // [numel]
  // [part_numel]: a slice of values() unless it has memory of its own
  at::Tensor part_values() const { return part_values_; }
  at::Tensor grads() const { return grads_; }            // [numel]; undefined while nothing is lent
  at::Tensor part_grads() const { return part_grads_; }  // [part_numel], likewise

  // Gives the whole gradients memory, [numel()] of the gradient type; its gaps are zeroed.
  // Take it back before the slots are used no more.
  void lend_grads(const at::Tensor& buffer);
  void take_back_grads();

  // Begins the copy of the part's gradients to the host, where FlatOptions::host_state asks for one;
  // after it, the host waits for the device before it reads.
  void copy_grads_to_host();

  // Zeroes the slots nobody wrote since they were fresh (unused parameters), so that the flat gradient can be reduced.
  void settle_grads();

  // Frees the values' memory and gets it back (contents undefined), below live saved views;
  // parameters keep their identity.
  void release();
  void fill();
  bool released() const { return released_; }

  // What this rank updates, in chunks, every trainable parameter named at least once;
  // where none is trainable, what this rank holds.
  const std::vector<Trainables>& pieces() const { return pieces_; }
  const Trainables& trainables() const { return pieces_.front(); }  // all of them, unless FlatOptions::chunk cut them

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
  at::Tensor part_masters_;  // undefined where the values are their own
  at::Tensor host_grads_;    // undefined unless the host keeps the state
  std::vector<Trainables> pieces_;
  bool released_ = false;
};

}  // namespace drivetrain
