#include "config/param_groups.h"

#include <fnmatch.h>

#include <algorithm>

#include "base/value_error.h"

namespace drivetrain {
namespace {

OptionTable make_param_group_table() {
  using G = ParamGroup;
  return table<G>()
      .field("params", &G::params, "names of parameters, with *, ? and [...] as in a shell; * matches dots, too")
      .field("roles", &G::roles, "matrix, bias, norm, embedding, output, router, expert, adapter; with params: both")
      .field("lr", &G::lr, "learning rate where the others have the optimizer's; null: the optimizer's")
      .at_least(0)
      .field("weight_decay", &G::weight_decay, "of all of them, biases too; null: the optimizer's")
      .at_least(0)
      .field("frozen", &G::frozen, "true: they keep their values, and need no gradients and no optimizer state");
}

void check(const ParamGroup& group, const std::string& path, Problems& problems) {
  const auto refuse = [&](const std::string& text) { problems.add(group.where, path + text); };
  if (group.params.empty() && group.roles.empty())
    refuse(" names no parameter\n   give \"params\" (patterns of names; \"*\" is all), \"roles\" or both");
  if (group.frozen && (group.lr || group.weight_decay))
    refuse(concat(": frozen parameters are not updated, and ", group.lr ? "lr" : "weight_decay",
                  " has nothing to act on\n   leave one of the two out"));
  if (!group.frozen && !group.lr && !group.weight_decay)
    refuse(" changes nothing\n   give \"lr\", \"weight_decay\" or \"frozen\": true");
}

// A lone string stands for a list of one.
Value with_lists(const Value& entry) {
  Value group = entry;
  for (Value::Member& member : group.members()) {
    const bool is_list = member.key == "params" || member.key == "roles";
    if (!is_list || !member.value.is_string()) continue;
    Value list = Value::array();
    list.where = member.value.where, list.key_where = member.value.key_where;
    list.items().push_back(member.value);
    member.value = std::move(list);
  }
  return group;
}

}  // namespace

bool ParamGroup::has(const std::string& name, const std::string& role) const {
  const auto matches = [&](const std::string& pattern) { return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0; };
  return (params.empty() || std::any_of(params.begin(), params.end(), matches)) &&
         (roles.empty() || std::find(roles.begin(), roles.end(), role) != roles.end());
}

const OptionTable& param_group_table() {
  static const OptionTable* const table = new OptionTable(make_param_group_table());
  return *table;
}

std::vector<ParamGroup> read_param_groups(const Value& list, Problems& problems) {
  std::vector<ParamGroup> groups;
  if (list.is_null()) return groups;
  if (!list.is_array()) {
    problems.add(list.where, concat("param_groups: expected a list of groups, found ", describe(list),
                                    "\n   write [{\"params\": \"block.*\", \"lr\": 1e-5}]"));
    return groups;
  }
  for (size_t i = 0; i < list.items().size(); ++i) {
    const Value& entry = list.items()[i];
    const std::string path = concat("param_groups[", i, "]");
    if (!entry.is_object()) {
      problems.add(entry.where, concat(path, ": expected an object, found ", describe(entry)));
      continue;
    }
    const size_t before = problems.list().size();
    ParamGroup group =
        *std::static_pointer_cast<ParamGroup>(param_group_table().parse(with_lists(entry), "a group", path, problems));
    group.where = entry.where;
    if (problems.list().size() == before) check(group, path, problems);
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace drivetrain
