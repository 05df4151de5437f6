// Plain data of a pickle as a Value: settings, options. Pure; any thread.
#pragma once

#include <optional>

#include <drivetrain/toolkit/torch_files/pickle_tree.h>
#include <drivetrain/value.h>

namespace drivetrain {

// Of none, booleans, numbers, texts, and of lists, tuples and dicts of such with texts as keys; classes and functions
// have none. Nor has what is nested deep or large, which the same few nodes can be made to be: those are no settings.
std::optional<Value> plain_value(const PickleNode& node);

}  // namespace drivetrain
