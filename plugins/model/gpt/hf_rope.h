// Rotary angles as config.json says them, in the spellings of transformers 4 and 5. Errors: config. Any thread.
#pragma once

#include "hf_keys.h"

namespace drivetrain::gpt {

// Sets the options rotary_base, rope_scaling, rotary_percent and rotary_local_base. Old and new spelling may both be
// there if they say the same.
void read_rope(const HfReader& reader, Value& options);
// Writes the spellings that `config` lacks.
void write_rope(const Family& family, const Shape& shape, Value& config);

}  // namespace drivetrain::gpt
