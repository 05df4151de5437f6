// Reductions in the fixed tree's order: slices go to the rank that adds them (grouped sends and receives), which adds
// them in one kernel. An all-reduce is that and an all-gather; up to kGatherBytes every rank gathers everything and
// adds for itself, in one step. Scratch memory is bounded: long slices pass in pieces.
//
// Moves as many bytes as NCCL's rings; costs one more pass over memory and the overlap of moving and adding.
// Thread: as Comm::enqueue, inside its body. Stream: the one given. Ownership: the caller keeps the scratch tensor.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdint>

#include "tree_sum.h"

namespace drivetrain::nccl {

struct TreeCall {
  SumType type;
  int64_t element_bytes;
  int ranks, me;

  // Elements of scratch that a slice of `count` needs.
  int64_t gather_scratch(int64_t count) const { return ranks * count; }
  int64_t reduce_scratch(int64_t count) const { return (ranks - 1) * piece(count); }
  int64_t all_reduce_scratch(int64_t count) const;
  int64_t piece(int64_t count) const;  // elements of a slice that pass at once

  // out [count] := this rank's slice of the sum of the ranks' in [ranks * count]; `out` may be that slice of `in`.
  ncclResult_t reduce_scatter(const char* in, char* out, int64_t count, char* scratch, ncclComm_t, cudaStream_t) const;
  // data [count] := sum over ranks.
  ncclResult_t all_reduce(char* data, int64_t count, char* scratch, ncclComm_t, cudaStream_t) const;

 private:
  bool gathers(int64_t count) const;
  ncclResult_t gather_and_add(char* data, int64_t count, char* scratch, ncclComm_t, cudaStream_t) const;
};

}  // namespace drivetrain::nccl
