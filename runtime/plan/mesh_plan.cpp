#include "plan/mesh_plan.h"

#include <algorithm>
#include <map>

#include <drivetrain/data_parallel.h>
#include <drivetrain/toolkit/text.h>

#include "plan/mesh_fit.h"

namespace drivetrain {
namespace {

using Claim = PlanRecord::Claim;
using Need = PlanRecord::Need;

std::string who(const std::string& by) { return by.empty() ? "" : by + ": "; }

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// "zero (a.json:3:5)"; a plugin chosen by default has no place.
std::string with_place(const std::string& by, const PlaceOf& place_of) {
  const Position where = place_of(by);
  return where.file.empty() ? by : concat(by, " (", where.text(), ")");
}

// Abilities begin with the kind that has them.
std::string plugin_without(const std::string& ability, const PlaceOf& place_of, const ChosenOf& chosen_of) {
  const std::string chosen = chosen_of ? chosen_of(ability.substr(0, ability.find('.'))) : "";
  return chosen.empty() ? "no chosen plugin offers" : with_place(chosen, place_of) + " does not offer";
}

// The runtime's own abilities are in every run until a plugin takes them away.
bool is_offered(const PlanRecord& context, const std::string& ability) {
  const auto& offers = context.offers();
  return ability == PlanContext::kWholePositions ||
         std::any_of(offers.begin(), offers.end(), [&](const auto& offer) { return offer.text == ability; });
}

// An order of the two is all that can be wrong: whoever comes first cannot be hindered by the other.
std::string taken_text(const Need& need, const PlaceOf& place_of) {
  return concat(who(need.by), "needs ", need.ability, " (", need.why, "), which ", with_place(need.taken_by, place_of),
                " takes away from those behind it (", need.taken_why, "); list ", need.by, " before ", need.taken_by);
}

void report_refusals(const PlanRecord& context, const PlaceOf& place_of, Problems& problems,
                     const PluginsThatOffer& that_offer, const ChosenOf& chosen_of) {
  for (const auto& refusal : context.refusals()) problems.add(place_of(refusal.by), who(refusal.by) + refusal.text);
  for (const auto& need : context.needs()) {
    if (!need.taken_by.empty()) {
      problems.add(place_of(need.by), taken_text(need, place_of));
      continue;
    }
    if (is_offered(context, need.ability)) continue;
    const auto others = that_offer ? that_offer(need.ability) : std::vector<std::string>{};
    problems.add(place_of(need.by), concat(who(need.by), "needs ", need.ability, " (", need.why, "), which ",
                                           plugin_without(need.ability, place_of, chosen_of),
                                           others.empty() ? ""
                                                          : "; of the installed ones, " + join(others, " and ") +
                                                                (others.size() == 1 ? " does" : " do")));
  }
}

bool is_of_kind(const std::string& by, const std::string& kind) { return by.rfind(kind + "/", 0) == 0; }

// What can be asked of the claims as a whole: one owner for each axis, one for the rest. Leaves out those that cannot
// stay.
std::vector<Claim> without_conflicts(const PlanRecord& context, const PlaceOf& place_of, Problems& problems) {
  std::vector<Claim> claims;
  std::map<std::string, std::string> owners;
  std::string rest_owner;
  for (const Claim& claim : context.claims()) {
    if (const auto [it, added] = owners.emplace(claim.axis, claim.by); !added) {
      problems.add(place_of(claim.by),
                   concat("axis ", claim.axis, " of the mesh is claimed by ", with_place(it->second, place_of),
                          " and by ", with_place(claim.by, place_of), "; use one of them"));
      continue;
    }
    if (claim.size == PlanContext::kRest && !rest_owner.empty()) {
      problems.add(place_of(claim.by), concat(with_place(rest_owner, place_of), " and ", with_place(claim.by, place_of),
                                              " both take the rest of the world; give one of them a size"));
      continue;
    }
    if (claim.size == PlanContext::kRest) rest_owner = claim.by;
    claims.push_back(claim);
  }
  return claims;
}

void check_order(const std::vector<Claim>& claims, const std::vector<std::string>& order, const PlaceOf& place_of,
                 Problems& problems) {
  std::vector<std::string> claimed;
  for (const Claim& claim : claims) claimed.push_back(claim.axis);
  for (size_t i = 0; i < order.size(); ++i) {
    const std::vector<std::string> before(order.begin(), order.begin() + static_cast<int64_t>(i));
    if (contains(before, order[i]))
      problems.add(place_of("mesh_order"), concat("mesh_order names the axis ", order[i], " twice"));
    if (contains(claimed, order[i])) continue;
    problems.add(place_of("mesh_order"),
                 concat("mesh_order names the axis ", order[i], ", which no chosen plugin claims; ",
                        claimed.empty() ? "there are none: every rank is on its own" : "claimed are " + join(claimed)));
  }
}

// Those that are named come first in their order, then the others by place.
void sort_claims(std::vector<Claim>& claims, const std::vector<std::string>& order) {
  const auto key = [&](const Claim& claim) {
    const auto named = std::find(order.begin(), order.end(), claim.axis);
    return std::make_pair(named - order.begin(), claim.place);
  };
  std::stable_sort(claims.begin(), claims.end(), [&](const Claim& a, const Claim& b) { return key(a) < key(b); });
}

}  // namespace

int64_t MeshPlan::batch_ranks() const {
  int64_t product = 1;
  for (const Axis& axis : axes)
    if (contains(batch_axes, axis.name)) product *= axis.size;
  return product;
}

std::vector<std::string> MeshPlan::gradient_axes() const {
  std::vector<std::string> names;
  for (const Axis& axis : axes)
    if (axis.joins_gradients) names.push_back(axis.name);
  return names;
}

std::string MeshPlan::text() const {
  std::vector<std::string> names;
  for (const Axis& axis : axes) names.push_back(concat(axis.name, " ", axis.size));
  return names.empty() ? "one rank" : join(names, " x ");
}

int64_t count_ranks(const PlanRecord& context, RunFacts& run) {
  int64_t fixed = 1, joined = 1, positions = 1;
  std::vector<std::string> taken;
  for (const Claim& claim : context.claims()) {
    if (is_of_kind(claim.by, DataParallel::kKind) || claim.size == PlanContext::kRest) continue;
    fixed = times(fixed, claim.size);
    if (claim.joins_gradients()) joined = times(joined, claim.size);
    if (claim.reads == PlanContext::Reads::other_positions) positions = times(positions, claim.size);
    if (claim.size > 1) taken.push_back(concat(claim.axis, " ", claim.size));
  }
  run.rest_ranks = run.world_size % fixed == 0 ? run.world_size / fixed : run.world_size;
  run.joined_ranks = joined;
  run.position_ranks = positions;
  run.taken_ranks = join(taken, " x ");
  int64_t tensor_ranks = 1;
  for (const auto& share : context.shares())
    if (share.layers) tensor_ranks *= share.ranks;
  run.tensor_ranks = tensor_ranks;
  const ModelFacts& model = context.model();
  const auto share_of = [&](int64_t heads) { return std::max<int64_t>(1, heads / tensor_ranks); };
  if (model.num_attention_heads.known()) run.heads_per_rank = share_of(model.num_attention_heads);
  if (model.num_query_groups.known())
    run.groups_per_rank = share_of(model.num_query_groups);
  else if (model.num_attention_heads.known())
    run.groups_per_rank = share_of(model.num_attention_heads);
  return fixed;
}

namespace {

const char* reads_text(PlanContext::Reads reads) {
  if (reads == PlanContext::Reads::same) return ", of ranks that read the same";
  return reads == PlanContext::Reads::other_rows ? ", of ranks that read other rows"
                                                 : ", of ranks that read other positions";
}

// What a plugin said, as text, so that two rounds can be compared and shown.
std::map<std::string, std::vector<std::string>> declarations_of(const PlanRecord& context) {
  std::map<std::string, std::vector<std::string>> words;
  for (const auto& claim : context.claims())
    words[claim.by].push_back(concat("claims the axis ", claim.axis, " with size ", claim.size, reads_text(claim.reads),
                                     ", at place ", claim.place));
  for (const auto& share : context.shares())
    words[share.by].push_back(
        concat("shares ", share.layers ? "layers" : "attention heads", " over ", share.ranks, " ranks"));
  for (const auto& offer : context.offers()) words[offer.by].push_back("offers " + offer.text);
  for (const auto& need : context.needs()) words[need.by].push_back("needs " + need.ability);
  return words;
}

// The first of `these` that is not among `those`; empty if there is none.
std::string only_in(const std::vector<std::string>& these, const std::vector<std::string>& those) {
  const auto found = std::find_if(these.begin(), these.end(), [&](const auto& word) { return !contains(those, word); });
  return found == these.end() ? std::string() : *found;
}

}  // namespace

void check_same_declarations(const PlanRecord& before, const PlanRecord& after) {
  auto earlier = declarations_of(before), later = declarations_of(after);
  for (const auto& [by, words] : earlier) later[by];
  for (const auto& [by, words] : later) {
    const std::string more = only_in(words, earlier[by]), less = only_in(earlier[by], words);
    if (more.empty() && less.empty()) continue;
    throw fail(ErrorCode::plugin, by, ": `plan` ", more.empty() ? less : more, " in ",
               more.empty() ? "the round before the last" : "the last round",
               " only. Wanted: the same claims, shares, ",
               "offers and needs in both\n   say them in every call of `plan`, by facts that both of them know");
  }
}

MeshPlan solve_mesh(const PlanRecord& context, const std::vector<std::string>& order, const PlaceOf& place_of,
                    Problems& problems, const PluginsThatOffer& that_offer, const ChosenOf& chosen_of) {
  report_refusals(context, place_of, problems, that_offer, chosen_of);
  std::vector<Claim> claims = without_conflicts(context, place_of, problems);
  check_order(claims, order, place_of, problems);
  sort_claims(claims, order);

  const MeshFit fit(claims, context.run().world_size);
  // Who refused may not have claimed what would explain the world.
  if (!fit.fits() && (fit.has_rest() || problems.empty())) problems.add(fit.place(place_of), fit.text(place_of));
  MeshPlan plan;
  for (const Claim& claim : claims) {
    Axis axis;
    axis.name = claim.axis;
    axis.size = claim.size == PlanContext::kRest ? fit.rest() : claim.size;
    axis.joins_gradients = claim.joins_gradients();
    plan.axes.push_back(axis);
    plan.owners.push_back(claim.by);
    plan.places.push_back(claim.place);
    if (claim.reads == PlanContext::Reads::other_rows) plan.batch_axes.push_back(claim.axis);
  }
  return plan;
}

}  // namespace drivetrain
