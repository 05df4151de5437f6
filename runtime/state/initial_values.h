// Initial values by the parameters' own rules: a function of (seed, name, global index), the same under every topology.
#pragma once

#include <vector>

#include <drivetrain/mesh.h>
#include <drivetrain/optimizer.h>

namespace drivetrain {

void fill_initial_values(const std::vector<Trainables>& chunks, uint64_t seed, const Mesh& mesh);

}  // namespace drivetrain
