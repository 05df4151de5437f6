#include "app/final_weights.h"

#include <set>

#include "state/gather.h"
#include "state/weights.h"

namespace drivetrain {

std::vector<Trainables> held_values(const Composition& run) {
  std::vector<Trainables> all = run.chunks;
  for (Trainables& chunk : run.data_parallel->frozen()) all.push_back(std::move(chunk));
  std::set<const Param*> named;
  for (const Trainables& chunk : all)
    for (const Trainable& t : chunk) named.insert(t.param.get());
  Trainables whole;  // as build_run fills them
  for (const ParamPtr& param : run.units.all()) {
    if (named.count(param.get())) continue;
    Trainable t;
    t.param = param, t.layout = param->layout;
    t.value = t.working = param->tensor.detach().view(-1);
    whole.push_back(std::move(t));
  }
  all.push_back(std::move(whole));
  return all;
}

void check_final(const Composition& run) { ParamGather(held_values(run), *run.mesh, run.services->device); }

void write_final(const Composition& run) {
  const ParamGather gather(held_values(run), *run.mesh, run.services->device);
  const WeightRules rules = run.model->weight_rules("hf");
  if (run.services->rank != 0) {  // in the order in which rank 0 asks
    for (const WeightRule& rule : rules.rules) gather.whole(rule.param);
    return;
  }
  const std::string folder = run.settings.output_dir + "/final";
  try {
    save_hf_folder(folder, rules, gather.shapes(), [&](const std::string& name) { return gather.whole(name); });
  } catch (const Error& e) {
    throw e.within(concat("the final weights, ", folder));
  }
  run.log->info("final weights in " + folder);
}

}  // namespace drivetrain
