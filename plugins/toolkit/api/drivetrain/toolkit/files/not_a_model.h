// Folders that are taken for a model's and hold something else.
#pragma once

#include <string>

namespace drivetrain {

// What of a known kind a folder holds in place of a model, and the nearest way to one: "is a folder of an adapter
// (adapter_config.json), ...\n   merge ...". Empty: nothing that is known, or there is a config.json, or weights.
// Thread: any.
std::string held_instead_of_model(const std::string& folder);

}  // namespace drivetrain
