// Rates of what a step is made of, measured as a step meets it: forward through layers that together no cache of a
// core holds, then backward from the last one to the first, by the operations that layers call. The same operation
// over and over again on one set of operands finds them in the cache, and is up to a fifth faster than in any step.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "bench/product_fit.h"
#include "internal.h"
#include "predict/shape_work.h"

namespace drivetrain {

// A type of products' operands, by its name in a hardware file.
struct ProductType {
  std::string name;
  at::ScalarType type;
  bool of_blocks = false;  // 8 bits with a scale for each block of numbers
};
// All that a plan may ask for and a device multiplies in. `arch` is a GPU's, as in sm_90. On processors 8 bits are
// emulated, and float16 may be.
DRIVETRAIN_INTERNAL std::vector<ProductType> product_types(const at::Device& device, int arch);

// FLOP/s of the three products of a layer: of its forward, and of both gradients. `shape.rate` is not read. In 8 bits
// without the casts, which a plan counts as passes; all sizes are multiples of 16 then, and of blocks of 512.
DRIVETRAIN_INTERNAL double product_rate(const at::Device& device, const ProductType& type,
                                        const MeasuredProduct& shape);

// With products of that type, so long at least. A GPU that was idle is faster than its power limit lets it be in a run.
// Nothing on processors.
DRIVETRAIN_INTERNAL void keep_busy(const at::Device& device, at::ScalarType type, double least_seconds);

// Bytes per second, as the planner counts them (add_shape), of what a block does besides its products and attention,
// forward and backward: norms with sums of the residual, the split into heads, the activation function, sums for
// biases. What norms and the activation function give is computed again in backward and not kept.
DRIVETRAIN_INTERNAL double pass_rate(const at::Device& device, const ModelShape& shape, int64_t tokens);

// Host seconds of an operation on tensors of a few numbers, of as many different ones as lie between two products of a
// block. On a processor they run with its cache full of something else, as behind a product: then their code and
// tables come from far away too, which takes ten times as long as in a loop.
DRIVETRAIN_INTERNAL double operation_seconds(const at::Device& device);

// The middle of some rounds and not the fastest: then another rank may have been idle.
DRIVETRAIN_INTERNAL double typical_seconds(const at::Device& device, const std::function<void()>& work);

}  // namespace drivetrain
