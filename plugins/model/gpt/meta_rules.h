// Our parameters and their places under the names that Meta gave Llama, which torchtitan keeps.
#pragma once

#include <drivetrain/model.h>

#include "shape.h"

namespace drivetrain::gpt {

// Error(config) for a shape that is no Llama: they have no such names.
WeightRules meta_rules(const Shape& shape);

}  // namespace drivetrain::gpt
