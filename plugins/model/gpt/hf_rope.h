// How rotary angles are stretched, as Hugging Face writes it: the keys of config.json, and the option rope_scaling.
// Errors: config. Any thread.
#pragma once

#include <string>

#include <drivetrain/value.h>

#include "hf_keys.h"

namespace drivetrain::gpt {

// An object with rope_type (or type) and what this type needs. `base`: what the object does not say. `positions`: of
// the model. `where`: for messages.
RotaryScaling read_scaling(const Value& group, const RotaryScaling& base, int64_t positions, const std::string& where);
// Old and new spelling: rope_theta and rope_scaling, rope_parameters. Both may be there if they say the same.
RotaryScaling read_rope(const HfReader& reader, int64_t positions);

// {"rope_type": "llama3", ...}, without the base; null for angles that are not stretched.
Value scaling_value(const RotaryScaling& scaling);
// What transformers 5 calls rope_parameters.
Value rope_parameters(const RotaryScaling& scaling);

}  // namespace drivetrain::gpt
