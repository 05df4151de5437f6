// Where each parameter stands in Megatron-LM's checkpoints, under the names of Megatron Core and whole, as
// checkpoint_format/megatron joins them. Any thread.
#pragma once

#include <drivetrain/model.h>

#include "shape.h"

namespace drivetrain::gpt {

WeightRules megatron_rules(const Shape& shape);
// What a checkpoint of such a model says of it, as checkpoint_format/megatron reads it: WeightRules::config.
Value megatron_facts(const Shape& shape);

}  // namespace drivetrain::gpt
