// A block of a shape, as strategies see it (layers.h), and its tensors by our names.
#pragma once

#include <string>
#include <vector>

#include <drivetrain/layers.h>

#include "shape.h"

namespace drivetrain::gpt {

// `length`: of the run's sequences, which some rotary angles go by.
BlockSpec block_spec(const Shape& shape, int64_t index, int64_t length);

struct LayerTensor {
  std::string name;  // "block.0.attn.qkv.weight"
  int64_t rows = 0, columns = 1;
};
std::vector<LayerTensor> block_tensors(const Shape& shape, int64_t index);
NormSpec final_norm_spec(const Shape& shape);

}  // namespace drivetrain::gpt
