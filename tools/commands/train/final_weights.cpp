#include "train/final_weights.h"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "plugin_calls/plugin_call.h"
#include "state/new_file.h"
#include "state/weights.h"
#include "train/base_weights.h"
#include "train/export_extras.h"
#include "train/exported_weights.h"
#include "train/gather.h"
#include "train/strategy_state.h"

namespace drivetrain {
namespace {

std::string final_folder(const Run& run, int number) {
  return concat(run.plan.settings.output_dir, "/final", number == 1 ? "" : concat("-", number));
}

void check_place(const Run& run, uint64_t bytes) {
  const std::string folder = final_folder(run, 1);
  if (!NewFolder::is_free(folder))
    throw fail(ErrorCode::config, folder, ": is there already and not an empty folder; the final weights go there\n   ",
               "move it away, or choose another --set output_dir=FOLDER");
  rlimit limit = {};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      std::min(bytes, kMaxShardBytes) > limit.rlim_cur)
    throw fail(ErrorCode::io, folder, ": the final weights take a file of ", std::min(bytes, kMaxShardBytes),
               " bytes, and `ulimit -f` allows ", limit.rlim_cur, "\n   raise it, or set \"save_final\" to false");
}

// The weights of an earlier end of this run give way.
void keep_earlier(const Run& run) {
  const std::string folder = final_folder(run, 1);
  const int64_t before = NewFolder::is_free(folder) ? -1 : step_of_hf_folder(folder);
  if (before < 0) return;
  std::string aside = concat(folder, "-step-", before);
  for (int number = 2; !NewFolder::is_free(aside); ++number) aside = concat(folder, "-step-", before, "-", number);
  std::error_code failed;
  std::filesystem::rename(folder, aside, failed);
  if (!failed) run.log->info(concat("the final weights of step ", before, " are kept in ", aside));
}

void add_extras(ExportedWeights& model, const Run& run, const Value& config) {
  const std::string from = plugin_call({run.plan.id_of(Model::kKind), "weights_folder"},
                                       [&] { return run.plugins.model->weights_folder(); });
  const ExportSource source{config, from, run.plan.data.end_tokens};
  const TokenizerReaders readers(run.folders->registry(), run.folders->services());
  model.extras = export_extras(model.rules, source, readers, *run.log);
}

}  // namespace

bool lacks_final(const Run& run) {
  if (!run.plan.settings.save_final) return false;
  const std::string folder = final_folder(run, 1);
  if (NewFolder::is_free(folder)) return true;
  const int64_t step = step_of_hf_folder(folder);
  return step >= 0 && step < run.plan.settings.train_steps;
}

void check_final(const Run& run) {
  const ParamGather gather(all_values(run), run.model_params, *run.mesh, run.services->device);
  if (run.services->rank != 0) return;
  uint64_t bytes = 0;
  for (const ExportedWeights& set : exported_weights(run, {}))
    for (const WeightRule& rule : set.rules.rules)
      bytes += static_cast<uint64_t>(Layout::whole(gather.shapes().at(rule.param)).global_numel()) * sizeof(float);
  check_place(run, bytes);
}

// Weights are worth more than what is said of them: a base folder that has gone meanwhile, or a strategy that cannot be
// asked, costs no more than a line.
static void add_metadata(std::vector<ExportedWeights>& sets, const Run& run) {
  try {
    if (sets.front().is_model()) name_left_state(sets.front(), run);
    if (std::any_of(sets.begin(), sets.end(), [](const auto& set) { return !set.is_model(); }))
      name_base(sets, base_of(run));
  } catch (const std::exception& e) {
    run.log->warning(concat("the final weights do not say all of where they are from: ", e.what()));
  }
}

void write_final(const Run& run, const Value& config, int64_t step, bool alone) {
  const ParamGather gather(all_values(run), run.model_params, *run.mesh, run.services->device);
  if (alone && run.services->rank != 0) return;
  if (alone && gather.needs_peers())
    return run.log->warning("the final weights are not written: other ranks held parts of them and are lost");
  const auto whole = [&](const std::string& name) { return gather.whole(name); };
  std::vector<ExportedWeights> sets = exported_weights(run, whole);
  if (run.services->rank != 0) {  // in the order in which rank 0 asks
    for (const ExportedWeights& set : sets)
      for (const WeightRule& rule : set.rules.rules) set.fetch(rule.param);
    return;
  }
  add_metadata(sets, run);
  keep_earlier(run);
  int number = 1;
  while (!NewFolder::is_free(final_folder(run, number))) ++number;
  const std::string folder = final_folder(run, number);
  if (number > 1) run.log->warning(concat(final_folder(run, 1), " is there already; the weights go to ", folder));
  if (sets.front().is_model()) add_extras(sets.front(), run, config);
  try {
    save_weights(folder, sets, gather.shapes(), step);
  } catch (const Error& e) {
    throw e.within(concat("the final weights, ", folder));
  }
  run.log->info("final weights in " + folder);
}

}  // namespace drivetrain
