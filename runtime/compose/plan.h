// From claims to a mesh. Pure: nothing is allocated, no communication.
#pragma once

#include <functional>
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

// Where in the config the plugin of this id ("attention/standard") was chosen; nowhere if by default.
using PlaceOf = std::function<Position(const std::string& id)>;

// Adds every problem to `problems`, both parties named: refusals, unmet needs, axes that do not multiply to the world.
DRIVETRAIN_API MeshPlan solve_mesh(const PlanContext& context, const PlaceOf& place_of, Problems& problems);

}  // namespace drivetrain
