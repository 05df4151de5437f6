// What the units of block.cpp and ends.cpp keep and take (planned_memory.h), told in the order of their code.
#pragma once

#include <optional>

#include <drivetrain/planned_memory.h>

#include "shape.h"

namespace drivetrain::gpt {

// How the block's layers and the recompute policy act on what is kept.
struct BlockKeeps {
  bool qkv_keeps_input = false, fc_keeps_input = false;  // Linear::keeps_input
  Keep norm = Keep::all, core = Keep::all, act = Keep::all;
  std::optional<double> expert_rows = {};  // the block's MLP is a mixture: Experts::planned_rows
  double kept_rows = 0;                    // drivetrain::kept_rows
};
VisitMemory block_memory(const Shape& shape, const VisitShape& visit, const BlockKeeps& keeps,
                         const AttentionMemory& attention);
// `window`: of the layer; 0: none.
AttentionShape attention_shape(const Shape& shape, const VisitShape& visit, int64_t window = 0);
VisitMemory embedding_memory(const Shape& shape, const VisitShape& visit);
VisitMemory head_memory(const Shape& shape, const VisitShape& visit);

}  // namespace drivetrain::gpt
