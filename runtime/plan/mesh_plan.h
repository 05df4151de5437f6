// From claims to a mesh. Pure: nothing is allocated, no communication.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <drivetrain/mesh.h>
#include <drivetrain/options.h>
#include <drivetrain/plan_record.h>

#include "internal.h"

namespace drivetrain {

struct DRIVETRAIN_INTERNAL MeshPlan {
  std::vector<Axis> axes;                          // fastest first, sizes multiplying to the world; index not set
  std::vector<std::string> owners;                 // who claimed each of them: "tensor_parallel/..."
  std::vector<int> places;                         // of each of them, as it was claimed: PlanContext::Place
  std::vector<std::string> batch_axes;             // whose ranks read other rows: they divide the global batch
  int64_t batch_ranks() const;                     // product of their sizes
  std::vector<std::string> gradient_axes() const;  // those that join the gradient reduction
  std::string text() const;                        // "tp 2 x dp 4 x pp 2"; "one rank"
};

// What the claims of others leave to a data-parallel plugin, and the heads that shares of layers leave to a rank, into
// the facts that the next round of `plan` sees. Returns the product of the sizes that are fixed; where it does not
// divide the world, all ranks are left, and solve_mesh will say so.
DRIVETRAIN_INTERNAL int64_t count_ranks(const PlanRecord& context, RunFacts& run);

// Throws Error(plugin) naming the plugin whose claims, shares, offers or needs differ in two rounds of `plan` that
// ought to say the same.
DRIVETRAIN_INTERNAL void check_same_declarations(const PlanRecord& before, const PlanRecord& after);

// Where in the config the plugin of this id ("attention/standard") was chosen; nowhere if by default. "mesh_order":
// where that is.
using PlaceOf = std::function<Position(const std::string& id)>;
// Installed plugins, not chosen, that would offer an ability in this run.
using PluginsThatOffer = std::function<std::vector<std::string>(const std::string& ability)>;
// The chosen plugin of a kind; "" if there is none.
using ChosenOf = std::function<std::string(const std::string& kind)>;

// Adds every problem to `problems`, both parties named: refusals, unmet needs, axes that do not multiply to the world.
// `order`: axes that come first, fastest first; those left out follow by their places.
DRIVETRAIN_INTERNAL MeshPlan solve_mesh(const PlanRecord& context, const std::vector<std::string>& order,
                                        const PlaceOf& place_of, Problems& problems,
                                        const PluginsThatOffer& that_offer = {}, const ChosenOf& chosen_of = {});

}  // namespace drivetrain
