#include "formats/model_facts.h"

#include <algorithm>
#include <cmath>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "base/printable.h"

namespace drivetrain {
namespace {

// Two programs may round 1 / sqrt(d) otherwise.
constexpr double kRounding = 1e-9;

bool same(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number())
    return std::abs(a.as_double() - b.as_double()) <= kRounding * std::abs(a.as_double());
  if (a.is_object() && b.is_object()) {
    const auto has = [](const Value& all, const Value::Member& one) {
      const Value* const found = all.find(one.key);
      return found && same(*found, one.value);
    };
    return a.members().size() == b.members().size() &&
           std::all_of(a.members().begin(), a.members().end(), [&](const auto& one) { return has(b, one); });
  }
  return a == b;
}

}  // namespace

std::string check_model_facts(const Checkpoint& checkpoint, const WeightRules& rules, const std::string& folder) {
  const Value* const said = checkpoint.facts().find("model");
  if (!said || !said->is_object()) return "";
  std::string differ;
  std::vector<std::string> unsaid;
  for (const Value::Member& one : said->members()) {
    const Value* const ours = rules.config.find(one.key);
    if (!ours)
      unsaid.push_back(shown(one.key));
    else if (!same(one.value, *ours))
      differ += concat("\n   ", shown(one.key), " is ", shown(one.value.to_json()), " in the checkpoint, ",
                       ours->to_json(), " in the model");
  }
  if (!differ.empty())
    throw fail(ErrorCode::config, folder, ": the checkpoint is of another model, in which the same weights give other ",
               "numbers:", differ, "\n   set the model's options to what the checkpoint says");
  if (unsaid.empty()) return "";
  return concat(folder, ": the checkpoint says ", join(unsaid),
                ", which is not compared: the model says nothing about it");
}

std::string differing_options(const Checkpoint& native, const std::string& name, const Value& options,
                              const std::string& folder) {
  const Value* const config = native.facts().find("config");
  const Value* const section = config ? config->find("model") : nullptr;
  const Value* const type = section ? section->find("type") : nullptr;
  const Value* const params = section ? section->find("params") : nullptr;
  if (!type || !params || !params->is_object()) return "";
  if (!(*type == Value(name)))
    return concat(folder, ": the weights are of a model/", shown(type->to_json()), ", and this one is a model/", name);
  std::vector<std::string> lines;
  for (const Value::Member& one : params->members()) {
    const Value* const now = options.find(one.key);
    if (one.key != "from" && now && !same(one.value, *now))
      lines.push_back(concat(shown(one.key), " ", shown(one.value.to_json()), " there, ", now->to_json(), " here"));
  }
  if (lines.empty()) return "";
  return concat(folder, ": the weights are of a run with other options of the model: ", join(lines, "; "));
}

}  // namespace drivetrain
