// What config.json says of single layers: which have a window, which have experts, and in which rope turns. Errors:
// config. Any thread.
#pragma once

#include "hf_keys.h"

namespace drivetrain::gpt {

// Sets the options sliding_window, window_layers and rotary_layers; of experts router_aux_loss_coef, and moe_layers or
// first_k_dense_replace.
void read_layers(const HfReader& reader, Value& options);
// The keys of a file that says nothing yet.
void write_layers(const Family& family, const Shape& shape, Value& config);
// router_aux_loss_coef and output_router_logits; `base`: what the file says already, or null.
void write_balance(const Family& family, const Shape& shape, const Shape* base, Value& config);
// Whether such a file can say which layers have a window.
bool can_say_windows(const Family& family, const Shape& shape);

}  // namespace drivetrain::gpt
