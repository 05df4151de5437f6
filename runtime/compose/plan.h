// From claims to a mesh. Pure: nothing is allocated, no communication.
#pragma once

#include <string>
#include <vector>

#include <drivetrain/mesh.h>
#include <drivetrain/options.h>
#include <drivetrain/plan_context.h>

namespace drivetrain {

struct MeshPlan {
  std::vector<Axis> axes;               // fastest first, sizes multiplying to the world; index not set
  std::vector<std::string> batch_axes;  // those that cut the global batch into rows: claimed by a data_parallel plugin
  int64_t batch_ranks() const;          // product of their sizes
};

// Adds every problem to `problems`, both parties named: refusals, unmet needs, axes that do not multiply to the world.
DRIVETRAIN_API MeshPlan solve_mesh(const PlanContext& context, Problems& problems);

}  // namespace drivetrain
