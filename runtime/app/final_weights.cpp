#include "app/final_weights.h"

#include "state/gather.h"
#include "state/weights.h"

namespace drivetrain {

std::vector<Trainables> all_values(const Composition& run) {
  std::vector<Trainables> all = held_values(run);
  all.push_back(unnamed_values(run));
  return all;
}

void check_final(const Composition& run) {
  ParamGather(all_values(run), run.model_params, *run.mesh, run.services->device);
}

void write_final(const Composition& run, bool alone) {
  const ParamGather gather(all_values(run), run.model_params, *run.mesh, run.services->device);
  if (alone && run.services->rank != 0) return;
  if (alone && gather.needs_peers())
    return run.log->warning("the final weights are not written: other ranks held parts of them and are lost");
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
