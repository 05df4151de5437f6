// Matrices that are computed with as a whole, from the parts of them that ranks hold: each has one owner among the
// ranks of a pipeline stage, which gets all its elements, computes, and sends back to every rank the results for the
// elements that this one holds. For optimizers such as Muon (Optimizer::wants_whole).
//
// It reads nothing but layouts, so it works under every way of cutting (tensor parallelism, ZeRO, FSDP) and of copying
// (plain data parallelism, where every rank holds everything and the work is shared). The owner computes on memory of
// its own and of the same shape whatever the cuts are, so results have the same bits under all of them. Owners are
// chosen by work, the largest matrix first, each for the rank with the least so far. Matrices go in rounds, so that
// memory is bounded; while one round is computed, the next one travels. PlannedMatrices says what all this takes.
//
// Source: torchtitan's DistMuon and xtuner have this exchange (all-to-all to owners and back). Thread: main, which also
// makes all calls but those of `compute` with Options::side_by_side.
#pragma once

#include <functional>
#include <vector>

#include <drivetrain/mesh.h>
#include <drivetrain/optimizer.h>
#include <drivetrain/toolkit/layout/slice_boxes.h>

namespace drivetrain {

// Neighbouring rows of a parameter that are one matrix: all of them, one of the matrices that it is fused of, an
// expert. Rows are those of dimension 0; what they hold stands in row-major order.
struct WholeTensor {
  ParamPtr param;
  int64_t first = 0, count = 0;   // rows
  int64_t rows = 0, columns = 0;  // of the matrix, with as many elements as these rows have
  double work = 0;                // of computing it, in any unit that all share
};

class WholeTensors {
 public:
  // The elements of a matrix that a trainable of this rank holds and that are a rectangle of both.
  struct Part {
    size_t tensor = 0, trainable = 0;  // indices into tensors() and the list of the constructor
    SliceBox box;                      // its row counts from the first row of the matrix's parameter, as in slice_map
    int64_t held_columns = 1;          // elements from one row to the next in what the trainable holds
    // The rectangle as a view [box.rows, box.columns] of a tensor of the trainable, seen as flat.
    at::Tensor in(const at::Tensor& held) const;
  };

  struct Options {
    at::ScalarType dtype = at::kFloat;         // of what travels, and of the matrices and results
    at::Device device = at::Device(at::kCPU);  // of the run: there the groups move tensors, and owners compute
    int64_t round = int64_t{1} << 24;          // elements that an owner gets per round, unless one matrix has more
    bool side_by_side = false;                 // `compute` may be called on several threads, each with another matrix
  };

  // The matrices of a parameter, none of them two times over; a function of the parameter alone.
  using Cut = std::function<std::vector<WholeTensor>(const ParamPtr&)>;
  // Collective over the ranks of a pipeline stage, which all hold the same parameters, if only with no elements.
  // `mesh` outlives this. Error(internal) if the parts of all ranks are not the whole.
  WholeTensors(const Trainables& all, const Cut& cut, const Mesh& mesh, const Options& options);

  const std::vector<WholeTensor>& tensors() const { return tensors_; }  // the same on all ranks of the stage
  int64_t owner(size_t tensor) const { return owners_[tensor]; }        // index within the stage's ranks
  const std::vector<Part>& parts() const { return parts_; }             // of this rank, whoever owns the matrix

  // Writes the elements of a part into `to` [box.rows, box.columns], which need not be contiguous.
  using Fill = std::function<void(const Part&, at::Tensor to)>;
  // The result for a whole matrix [rows, columns], contiguous and of the same size; may be computed in place.
  using Compute = std::function<at::Tensor(const WholeTensor&, const at::Tensor& matrix)>;
  // Gets the result for the elements of a part, [box.rows, box.columns].
  using Take = std::function<void(const Part&, const at::Tensor& result)>;
  // Calls `fill` once for each part that travels or is already where it is wanted, `take` once for every part,
  // `compute` once for each matrix that this rank owns. A `fill` may come after the `take` of another matrix.
  // Collective over the ranks of the stage.
  void run(const Fill& fill, const Compute& compute, const Take& take) const;

 private:
  // A part of some rank. Of this rank's own, `own` is the index into parts_.
  struct Place {
    size_t tensor;
    SliceBox box;
    size_t own;
  };
  struct Round;

  void list_parts(const Trainables& all, const Cut& cut);
  void exchange_places();
  void check_whole() const;
  bool sends(int64_t rank, size_t tensor) const;
  at::Tensor flat(int64_t numel) const;
  at::Tensor in_matrix(const Place& place, const at::Tensor& matrix) const;
  void begin_gather(Round& round, const Fill& fill) const;
  void end_gather(Round& round, const Fill& fill) const;
  void compute_all(Round& round, const Compute& compute) const;
  void begin_spread(Round& round, const Compute& compute) const;
  void end_spread(Round& round, const Take& take) const;

  const Mesh& mesh_;
  const Options options_;
  GroupPtr stage_;
  std::vector<WholeTensor> tensors_;
  std::vector<std::vector<std::string>> cut_axes_;  // of each tensor: along which its parts lie
  std::vector<int64_t> owners_;
  std::vector<Part> parts_;
  std::vector<std::vector<std::vector<Place>>> places_;  // by rank of the stage and tensor
  std::vector<std::vector<size_t>> rounds_;              // of tensors, ascending in each
};

}  // namespace drivetrain
