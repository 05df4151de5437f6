#include "plan/strategy_weights.h"

#include <algorithm>
#include <map>
#include <set>

#include <drivetrain/error.h>

#include "base/printable.h"
#include "plugin_calls/plugin_call.h"

namespace drivetrain {
namespace {

// Below the folder that is written, so that no plugin writes elsewhere by a slip.
bool lies_inside(const std::string& name) {
  return name != "." && name != ".." && name.find_first_of(std::string("/\\\0", 3)) == std::string::npos;
}

class FolderCheck {
 public:
  explicit FolderCheck(const PreparedRun& run) {
    for (const ParamPtr& param : run.model_params) params_.insert(param->name);
  }

  void check(const std::string& owner, const WeightFolder& folder) {
    const std::string place = concat("\"", shown(folder.name), "\"");
    if (!lies_inside(folder.name) || !lies_inside(folder.weights_file) || !lies_inside(folder.config_file))
      throw fail(ErrorCode::plugin, "weight_folders: the folder ", place, " with \"", shown(folder.weights_file),
                 "\" and \"", shown(folder.config_file), "\": plain names were wanted");
    if (folder.weights_file.empty())
      throw fail(ErrorCode::plugin, "weight_folders: the folder ", place, " has no name for its file of weights");
    for (const std::string& file : {folder.weights_file, folder.config_file})
      if (!file.empty()) claim(files_, concat(folder.name, folder.name.empty() ? "" : "/", file), owner, "the file ");
    for (const WeightRule& rule : folder.rules.rules) {
      if (!params_.count(rule.param))
        throw fail(ErrorCode::plugin, "weight_folders: the folder ", place, " names ", shown(rule.param),
                   ", and the model has no such parameter");
      claim(claimed_, rule.param, owner, "");
    }
  }

 private:
  static void claim(std::map<std::string, std::string>& all, const std::string& what, const std::string& owner,
                    const char* noun) {
    if (const auto [before, fresh] = all.emplace(what, owner); !fresh)
      throw fail(ErrorCode::plugin, "weight_folders: ", noun, what, " is named twice",
                 before->second == owner ? "" : concat(", also by ", before->second));
  }

  std::set<std::string> params_;
  std::map<std::string, std::string> files_, claimed_;  // who named them
};

}  // namespace

std::vector<StrategyFolder> strategy_folders(const PreparedRun& run) {
  std::vector<StrategyFolder> all;
  FolderCheck checks(run);
  each_strategy(run.plugins.strategies, Nesting::outermost_first, "weight_folders", "", [&](const Strategy& s) {
    const auto is_this = [&](const NamedStrategy& named) { return named.strategy.get() == &s; };
    const auto& id = std::find_if(run.plugins.strategies.begin(), run.plugins.strategies.end(), is_this)->id;
    for (WeightFolder& folder : s.weight_folders()) {
      checks.check(id, folder);
      all.push_back({id, std::move(folder)});
    }
  });
  return all;
}

bool exports_model(const PreparedRun& run) {
  bool all = true;
  each_strategy(run.plugins.strategies, Nesting::outermost_first, "exports_model", "",
                [&](const Strategy& s) { all = s.exports_model() && all; });
  return all;
}

at::Tensor merged(const PreparedRun& run, const std::string& param, at::Tensor value,
                  const Strategy::WholeParam& whole) {
  const auto is_it = [&](const ParamPtr& p) { return p->name == param; };
  const auto found = std::find_if(run.model_params.begin(), run.model_params.end(), is_it);
  if (found == run.model_params.end())
    throw fail(ErrorCode::internal, "the model has a weight rule for ", param, " and no such parameter");
  each_strategy(run.plugins.strategies, Nesting::innermost_first, "merge", "", [&](const Strategy& s) {
    const at::Tensor with = s.merge(**found, value, whole);
    if (!with.defined() || with.sizes() != value.sizes() || with.scalar_type() != value.scalar_type())
      throw fail(ErrorCode::plugin, "merge returned ",
                 with.defined() ? concat(with.scalar_type(), " ", with.sizes()) : std::string("nothing"), " for ",
                 param, "; wanted ", value.scalar_type(), " ", value.sizes());
    value = with;
  });
  return value;
}

void check_rules(const PreparedRun& run, const WeightRules& rules, const std::string& purpose) {
  std::set<std::string> with;
  for (const WeightRule& rule : rules.rules) with.insert(rule.param);
  std::vector<std::string> without;
  for (const ParamPtr& param : run.model_params)
    if (!with.count(param->name) && !run.added_params.count(param->name)) without.push_back(param->name);
  if (without.empty()) return;
  throw fail(ErrorCode::plugin, run.plan.id_of(Model::kKind), ": its weight_rules have no rule for ", without.size(),
             " of its own ", run.model_params.size() - run.added_params.size(), " parameters (", some_names(without),
             "): ", purpose);
}

std::string some_names(const std::vector<std::string>& names) {
  constexpr size_t kMost = 3;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i) text += (i ? ", " : "") + shown(names[i]);
  return names.size() > kMost ? concat(text, " and ", names.size() - kMost, " more") : text;
}

}  // namespace drivetrain
