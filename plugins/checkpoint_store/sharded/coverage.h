// Whether slices cover a tensor once.
#pragma once

#include <string>
#include <vector>

#include <drivetrain/checkpoint_store.h>

namespace drivetrain::sharded {

// What is left of `boxes`, which do not overlap, without the elements of `cut`.
std::vector<StateBox> without(const std::vector<StateBox>& boxes, const StateBox& cut);

// What is wrong with slices that should hold every element of `whole` once; empty: nothing.
std::string coverage_problem(const StateBox& whole, const std::vector<StateBox>& slices);

}  // namespace drivetrain::sharded
