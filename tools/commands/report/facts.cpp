#include "report/facts.h"

#include <torch/headeronly/version.h>

#include <drivetrain/toolkit/host.h>

#include "device/open_device.h"
#include "plugin/kinds.h"

namespace drivetrain {
namespace {

void compare(const Value& old_value, const Value& value, const std::string& path, std::vector<std::string>& lines) {
  if (old_value.is_object() && value.is_object()) {
    for (const auto& member : value.members()) {
      const Value* before = old_value.find(member.key);
      if (before) compare(*before, member.value, path.empty() ? member.key : path + "." + member.key, lines);
    }
    return;
  }
  if (!(old_value == value)) lines.push_back(path + ": " + old_value.to_json() + " then, " + value.to_json() + " now");
}

Value groups_value(const std::vector<PlannedParamGroup>& groups) {
  Value list = Value::array();
  for (const PlannedParamGroup& group : groups) {
    Value row = Value::object();
    row.set("group", group.name), row.set("tensors", group.tensors), row.set("parameters", group.elements);
    list.items().push_back(std::move(row));
  }
  return list;
}

Value list_of(const std::vector<int32_t>& ids) {
  Value list = Value::array();
  for (const int32_t id : ids) list.items().emplace_back(int64_t{id});
  return list;
}

}  // namespace

// What the file left to rules, as it is shown at the start.
Value settled_value(const std::vector<AutoValue>& settled) {
  Value list = Value::array();
  for (const AutoValue& one : settled) {
    Value row = Value::object();
    row.set("key", one.key), row.set("value", one.value), row.set("rule", one.rule);
    list.items().push_back(std::move(row));
  }
  return list;
}

Value resolved_value(const PreparedRun& run, const Registry& registry) {
  std::vector<Selection> selections;
  for (const ChosenPlugin& plugin : run.chosen) selections.push_back(plugin.selection);
  const auto options_of = [&](const Selection& selection) {
    for (const ChosenPlugin& plugin : run.chosen)
      if (plugin.kind() == selection.kind && plugin.name() == selection.name && plugin.selection.path == selection.path)
        return registry.options(plugin.kind(), plugin.name()).to_value(plugin.options.get());
    return Value::object();
  };
  Value resolved =
      resolved_config(run.plan.settings, run.plan.batch, selections, chosen_kind_rules(), registry.known(), options_of);
  if (Value settled = settled_value(run.plan.settings.settled); !settled.items().empty())
    resolved.set("_settled", std::move(settled));
  return resolved;
}

Value resolved_facts(const RunPlan& plan, const Registry& registry) {
  Value plugins = Value::object();
  for (const PlannedPlugin& plugin : plan.plugins)
    if (plugin.enabled) plugins.set(plugin.id(), registry.facts(plugin.kind, plugin.name).to_value());
  Value mesh = Value::object();
  for (const Axis& axis : plan.mesh.axes) mesh.set(axis.name, axis.size);
  Value facts = Value::object();
  facts.set("world_size", plan.run.world_size);
  facts.set("mesh", mesh);
  facts.set("libtorch", TORCH_VERSION);
  facts.set("libtorch_folder", torch_folder());
  facts.set("parameters", plan.model.parameters);
  if (!plan.param_groups.empty()) facts.set("param_groups", groups_value(plan.param_groups));
  facts.set("flops_formula", plan.model.flops_formula);
  facts.set("data", plan.data.notes);
  if (plan.data.begin_tokens) facts.set("begin_tokens", list_of(*plan.data.begin_tokens));
  if (!plan.data.end_tokens.empty()) facts.set("end_tokens", list_of(plan.data.end_tokens));
  facts.set("seq_length", plan.run.seq_length.value_or(0));
  facts.set("plugins", plugins);
  facts.set("host", host_name());
  return facts;
}

std::optional<std::vector<int32_t>> listed_tokens(const Value& facts, const char* key) {
  const Value* const list = facts.find(key);
  if (!list || !list->is_array()) return std::nullopt;
  std::vector<int32_t> tokens;
  for (const Value& id : list->items())
    if (id.is_int()) tokens.push_back(static_cast<int32_t>(id.as_int()));
  return tokens;
}

std::vector<std::string> differing_facts(const Value& old_facts, const Value& facts) {
  std::vector<std::string> lines;
  compare(old_facts, facts, "", lines);
  return lines;
}

}  // namespace drivetrain
