#include "plan/param_groups.h"

#include <c10/util/accumulate.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>
#include <sstream>

#include <drivetrain/toolkit/text.h>

#include "base/suggest.h"
#include "plugin_calls/plugin_call.h"

namespace drivetrain {
namespace {

using Params = std::vector<ParamPtr>;

constexpr ParamRole kRoles[] = {ParamRole::matrix, ParamRole::bias,   ParamRole::norm,   ParamRole::embedding,
                                ParamRole::output, ParamRole::router, ParamRole::expert, ParamRole::adapter};

bool has(const ParamGroup& group, const Param& param) { return group.has(param.name, role_name(param.role)); }

std::string path_of(size_t group) { return concat("param_groups[", group, "]"); }

// "block.*.attn.qkv.weight" of "block.7.attn.qkv.weight": one for all blocks, and a pattern as it can be written.
std::string without_numbers(const std::string& name) {
  std::string text, part;
  std::istringstream parts(name);
  while (std::getline(parts, part, '.')) {
    const bool number =
        !part.empty() && std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isdigit(c); });
    text += (text.empty() ? "" : ".") + (number ? std::string("*") : part);
  }
  return text;
}

// Names that have all of the pattern but its outer wildcards come first, then those of which some parts in a row are
// typed most alike.
std::string nearest_names(const std::string& pattern, const Params& params) {
  std::string piece = lower_case(pattern);
  while (piece.ends_with('*') || piece.ends_with('.')) piece.pop_back();
  piece.erase(0, std::min(piece.find_first_not_of("*."), piece.size()));
  std::set<std::pair<double, std::string>> costs;
  for (const ParamPtr& param : params) {
    const std::string name = without_numbers(param->name);
    double least = !piece.empty() && lower_case(name).find(piece) != std::string::npos ? 0 : HUGE_VAL;
    for (size_t begin = 0; begin != std::string::npos && least > 0; begin = name.find('.', begin)) {
      begin += begin > 0;
      for (size_t end = begin; end != std::string::npos;) {
        end = name.find('.', end + 1);
        least = std::min(least, 1 + typing_cost(piece, name.substr(begin, end - begin)));
      }
    }
    costs.emplace(least, name);
  }
  std::vector<std::string> nearest;
  for (const auto& [cost, name] : costs)
    if (nearest.size() < 3) nearest.push_back(name);
  return join(nearest);
}

std::string roles_of(const Params& params) {
  std::set<std::string> roles;
  for (const ParamPtr& param : params) roles.insert(role_name(param->role));
  return join(roles);
}

// Every pattern and every role has to be of use: one that is mistyped would leave its parameters to the optimizer.
void check_matches(const ParamGroup& group, const std::string& path, const Params& params, Problems& problems) {
  const auto any = [&](const ParamGroup& part) {
    return std::any_of(params.begin(), params.end(), [&](const ParamPtr& p) { return has(part, *p); });
  };
  const size_t before = problems.list().size();
  for (const std::string& pattern : group.params)
    if (ParamGroup part; part.params = {pattern}, !any(part))
      problems.add(group.where, concat(path, ".params: \"", pattern, "\" matches no parameter of the model",
                                       "\n   the nearest are ", nearest_names(pattern, params)));
  std::vector<std::string> known;
  for (const ParamRole role : kRoles) known.emplace_back(role_name(role));
  for (const std::string& role : group.roles) {
    ParamGroup part;
    part.roles = {role};
    if (std::find(known.begin(), known.end(), role) == known.end())
      problems.add(group.where, concat(path, ".roles: there is no role \"", role, "\"", suggestion(role, known)));
    else if (!any(part))
      problems.add(group.where, concat(path, ".roles: no parameter of the model has the role \"", role,
                                       "\"\n   it has ", roles_of(params)));
  }
  if (problems.list().size() == before && !any(group))
    problems.add(group.where, concat(path, ": no parameter has one of these names and one of these roles",
                                     "\n   a group with both has the parameters that fit both; make two groups of it"));
}

// The parameters of each group. The first of two groups that have a parameter keeps it.
std::vector<Params> shared_out(const PreparedRun& run, Problems& problems) {
  const std::vector<ParamGroup>& groups = run.plan.settings.groups;
  std::map<const Param*, size_t> owners;
  std::vector<Params> shares(groups.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    check_matches(groups[g], path_of(g), run.model_params, problems);
    std::map<size_t, Params> taken;  // by the group that has them
    for (const ParamPtr& param : run.model_params) {
      if (!has(groups[g], *param)) continue;
      const auto [owner, added] = owners.emplace(param.get(), g);
      (added ? shares[g] : taken[owner->second]).push_back(param);
    }
    for (const auto& [other, params] : taken)
      problems.add(groups[g].where,
                   concat(path_of(g), " and ", path_of(other), " (", groups[other].where.text(), ") both claim ",
                          params.front()->name, params.size() > 1 ? concat(" and ", params.size() - 1, " more") : "",
                          "\n   a parameter is in one group at most: narrow the patterns or roles of one of them"));
  }
  return shares;
}

// A rate of its own follows the schedule in proportion to the optimizer's.
void check_rates(const PreparedRun& run, Problems& problems) {
  const std::string id = run.plan.id_of(Optimizer::kKind);
  const std::vector<Hyper> base = plugin_call({id, "groups"}, [&] { return run.plugins.optimizer->groups(); });
  if (std::none_of(base.begin(), base.end(), [](const Hyper& h) { return h.lr == 0; })) return;
  const std::vector<ParamGroup>& groups = run.plan.settings.groups;
  for (size_t g = 0; g < groups.size(); ++g)
    if (groups[g].lr)
      problems.add(groups[g].where,
                   concat(path_of(g), ".lr: it is scaled as the schedule scales the optimizer's, which is 0",
                          "\n   set optimizer.params.lr, or freeze the other parameters by a group of their own"));
}

void freeze(const PreparedRun& run, const std::vector<Params>& shares, Problems& problems) {
  const std::vector<ParamGroup>& groups = run.plan.settings.groups;
  const auto trains = [](const Params& params) {
    return std::any_of(params.begin(), params.end(), [](const ParamPtr& p) { return p->trainable; });
  };
  if (!trains(run.model_params)) return;  // told elsewhere: it is not these groups' doing
  const ParamGroup* last = nullptr;
  for (size_t g = 0; g < groups.size(); ++g) {
    if (!groups[g].frozen && !shares[g].empty() && !trains(shares[g]))
      problems.add(groups[g].where, concat(path_of(g), ": all of its parameters are frozen (", shares[g].front()->name,
                                           ", ...), by the model or a strategy\n   leave the group out"));
    if (!groups[g].frozen) continue;
    last = &groups[g];
    for (const ParamPtr& param : shares[g]) param->trainable = false;
  }
  if (last && !trains(run.model_params))
    problems.add(last->where,
                 "param_groups: every parameter of the model is frozen, and nothing is trained"
                 "\n   leave a part of the model out of the frozen groups; `drivetrain evaluate` needs no training");
}

PlannedParamGroup counted(const std::string& name, const ParamGroup& group, const Params& params) {
  PlannedParamGroup planned{name, {}, group.lr, group.weight_decay, group.frozen, 0, 0};
  std::vector<std::string> words = group.params;
  for (const std::string& role : group.roles) words.push_back("role " + role);
  planned.what = join(words);
  for (const ParamPtr& param : params)
    ++planned.tensors, planned.elements += c10::multiply_integers(param->layout.global_shape);
  return planned;
}

}  // namespace

void apply_param_groups(PreparedRun& run, Problems& problems) {
  const std::vector<ParamGroup>& groups = run.plan.settings.groups;
  if (groups.empty() || !run.plan.run.training) return;
  const std::vector<Params> shares = shared_out(run, problems);
  check_rates(run, problems);
  freeze(run, shares, problems);
  if (!problems.empty()) return;
  std::set<const Param*> grouped;
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const ParamPtr& param : shares[g]) grouped.insert(param.get());
    run.plan.param_groups.push_back(counted(path_of(g), groups[g], shares[g]));
    if (!groups[g].frozen) run.param_groups.add({groups[g].lr, groups[g].weight_decay}, shares[g]);
  }
  Params others;
  for (const ParamPtr& param : run.model_params)
    if (!grouped.contains(param.get())) others.push_back(param);
  run.plan.param_groups.push_back(counted("others", {}, others));
}

}  // namespace drivetrain
