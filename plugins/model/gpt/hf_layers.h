// What config.json says of single layers: which have a window, and in which rope turns. Errors: config. Any thread.
#pragma once

#include "hf_keys.h"

namespace drivetrain::gpt {

// Sets the options sliding_window and window_layers, and rotary_layers.
void read_layers(const HfReader& reader, Value& options);
// The keys of a file that says nothing yet.
void write_layers(const Family& family, const Shape& shape, Value& config);
// Whether such a file can say which layers have a window.
bool can_say_windows(const Family& family, const Shape& shape);

}  // namespace drivetrain::gpt
