#include "planner/search_space.h"

#include <algorithm>

#include <drivetrain/error.h>

#include "base/printable.h"
#include "base/suggest.h"

namespace drivetrain {
namespace {

const std::vector<std::string> kKeys = {"name", "section",   "option",     "levels", "up_to",
                                        "most", "otherwise", "instead_of", "off",    "aliases"};

std::string text_of(const Value& factor, const char* key) {
  const Value* const value = factor.find(key);
  return value ? value->as_string() : std::string();
}

std::vector<Value> doubled(int64_t most) {
  std::vector<Value> levels;
  for (int64_t n = 1; n <= most; n *= 2) levels.emplace_back(n);
  return levels;
}

// Sizes that divide the experts; none where the model has no experts.
std::vector<Value> shares_of(int64_t experts, int64_t most) {
  std::vector<Value> levels = doubled(std::min(most, experts));
  std::erase_if(levels, [&](const Value& level) { return experts % level.as_int() != 0; });
  return levels;
}

std::vector<Value> levels_of(const Value& factor, int64_t ranks, int64_t ranks_per_host, int64_t experts) {
  if (const Value* const levels = factor.find("levels")) return levels->items();
  const std::string bound = text_of(factor, "up_to");
  if (bound == "experts") return shares_of(experts, ranks);
  if (bound != "ranks" && bound != "ranks_per_host")
    throw fail(ErrorCode::config, factor.where.text(),
               ": a factor has \"levels\", a list, or \"up_to\", which is \"ranks\", ",
               "\"ranks_per_host\" or \"experts\", found ", bound.empty() ? "neither" : shown(bound));
  const Value* const most = factor.find("most");
  return doubled(std::min(bound == "ranks" ? ranks : std::min(ranks, ranks_per_host), most ? most->as_int() : ranks));
}

SearchFactor factor_of(const Value& value, int64_t ranks, int64_t ranks_per_host, int64_t experts) {
  for (const Value::Member& m : value.members())
    if (std::find(kKeys.begin(), kKeys.end(), m.key) == kKeys.end())
      throw fail(ErrorCode::config, m.value.key_where.text(), ": a factor has no key \"", shown(m.key), "\"",
                 suggestion(m.key, kKeys));
  SearchFactor factor;
  factor.name = text_of(value, "name"), factor.section = text_of(value, "section");
  factor.option = text_of(value, "option");
  if (factor.name.empty() || factor.section.empty())
    throw fail(ErrorCode::config, value.where.text(), ": a factor needs \"name\" and \"section\"");
  factor.levels = levels_of(value, ranks, ranks_per_host, experts);
  if (factor.levels.empty() && text_of(value, "up_to") != "experts")
    throw fail(ErrorCode::config, value.where.text(), ": factor ", shown(factor.name), " has no levels");
  if (const Value* const off = value.find("off")) factor.off = *off;
  if (const Value* const section = value.find("otherwise")) factor.otherwise = *section;
  if (const Value* const list = value.find("instead_of"))
    for (const Value& section : list->items()) factor.instead_of.push_back(section.as_string());
  if (const Value* const list = value.find("aliases"))
    for (const Value& name : list->items()) factor.aliases.push_back(name.as_string());
  return factor;
}

// Bare options, or those under "params".
void set_option(Value& section, const SearchFactor& factor, const Value& level) {
  Value* at = &section;
  if (section.find("type") || section.find("params")) {
    if (!section.find("params")) section.set("params", Value::object());
    for (Value::Member& m : section.members())
      if (m.key == "params") at = &m.value;
  }
  for (const std::string& name : factor.aliases) at->erase(name);
  at->set(factor.option, level);
}

void apply(const SearchFactor& factor, const Value& level, Value& config) {
  for (const std::string& section : factor.instead_of) config.erase(section);
  if (factor.off && *factor.off == level) {
    config.erase(factor.section);
    return;
  }
  if (factor.option.empty()) {
    config.set(factor.section, level);
    return;
  }
  const Value* const given = config.find(factor.section);
  Value section = given && given->is_object() ? *given : factor.otherwise;
  if (given && given->is_string()) section = Value::object(), section.set("type", *given);
  set_option(section, factor, level);
  config.set(factor.section, section);
}

}  // namespace

SearchSpace search_space(const Value& file, int64_t ranks, int64_t ranks_per_host, int64_t experts) {
  const Value* const factors = file.find("factors");
  if (!factors || !factors->is_array() || factors->items().empty())
    throw fail(ErrorCode::config, file.where.text(),
               ": a search space is an object with \"factors\", a list of at least one");
  SearchSpace space;
  for (const Value& factor : factors->items())
    space.factors.push_back(factor_of(factor, ranks, ranks_per_host, experts));
  std::erase_if(space.factors, [](const SearchFactor& factor) { return factor.levels.empty(); });
  if (const Value* const cuts = file.find("cut_ranks"))
    for (const Value& name : cuts->items())
      for (SearchFactor& factor : space.factors) factor.cuts_ranks |= factor.name == name.as_string();
  return space;
}

std::vector<std::vector<size_t>> mixes_of(const SearchSpace& space, int64_t ranks) {
  std::vector<std::vector<size_t>> mixes = {{}};
  for (const SearchFactor& factor : space.factors) {
    std::vector<std::vector<size_t>> longer;
    for (const auto& mix : mixes)
      for (size_t level = 0; level < factor.levels.size(); ++level)
        longer.push_back(mix), longer.back().push_back(level);
    mixes = std::move(longer);
  }
  std::erase_if(mixes, [&](const std::vector<size_t>& mix) {
    int64_t cut = 1;
    for (size_t f = 0; f < mix.size(); ++f)
      if (space.factors[f].cuts_ranks) cut *= space.factors[f].levels[mix[f]].as_int();
    return ranks % cut != 0;
  });
  return mixes;
}

Value config_of(const SearchSpace& space, const std::vector<size_t>& mix, Value config, int64_t train_batch_size) {
  config.set("train_batch_size", train_batch_size);
  config.erase("gradient_accumulation_steps");
  for (size_t f = 0; f < mix.size(); ++f) apply(space.factors[f], space.factors[f].levels[mix[f]], config);
  return config;
}

}  // namespace drivetrain
