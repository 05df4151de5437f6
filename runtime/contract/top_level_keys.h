// What an option table asks of the config's top level. It is answered above the contract, in config/run_settings.cpp.
// Pure function; any thread.
#pragma once

#include <string>

namespace drivetrain {

// Whether a key belongs to the top level of a config: "train_steps".
bool is_top_level_key(const std::string& key);

}  // namespace drivetrain
