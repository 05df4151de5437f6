// The words of a config that stand for places on this machine.
#pragma once

#include <string>

#include <drivetrain/value.h>

namespace drivetrain {

// The torch package folder this process runs with.
std::string torch_folder();

// Replaces a leading "${torch}" of every string by torch_folder().
void expand_places(Value& config);

}  // namespace drivetrain
