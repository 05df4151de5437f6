#include "train/base_weights.h"

#include <map>

#include <drivetrain/error.h>

#include "plan/strategy_weights.h"
#include "state/hf_folder.h"

namespace drivetrain {
namespace {

constexpr const char *kFolder = "base_folder", *kDigest = "base_digest";  // in the metadata of a file

std::map<std::string, std::string> said_in(const HfFolder& added) {
  std::map<std::string, std::string> said;
  const std::vector<std::string> names = added.names();
  if (names.empty()) return said;
  for (const auto& [key, text] : added.file_of(names.front())->metadata()) said[key] = text;
  return said;
}

void check_base(Run& run, const std::string& owner, const HfFolder& added, const char* remedy) {
  std::map<std::string, std::string> said = said_in(added);
  if (said[kDigest].empty())
    return run.log->info(concat(owner, ": ", added.path(),
                                " does not say with which weights it was trained, so that the base cannot be checked"));
  if (run.weights_from.empty())
    return run.log->info(concat(owner, ": ", added.path(), " was trained with the weights of ", said[kFolder],
                                ", and this run reads none from a folder, so that the base cannot be checked"));
  run.frozen_base.digest = base_of(run).digest;  // read once
  if (run.frozen_base.digest == said[kDigest]) return;
  throw fail(ErrorCode::config, owner, ": ", added.path(), " was trained with the weights of ", said[kFolder],
             " (digest ", said[kDigest], "), and the model's are from ", run.weights_from, " (digest ",
             run.frozen_base.digest, "): it is an adapter of another base; names and types of tensors count, too\n   ",
             remedy);
}

}  // namespace

FrozenBase base_of(const Run& run) {
  FrozenBase base{run.weights_from, run.frozen_base.digest, {}};
  if (!base.folder.empty() && base.digest.empty()) base.digest = digest_of_weights(HfFolder(base.folder));
  return base;
}

void name_base(std::vector<ExportedWeights>& sets, const FrozenBase& base) {
  if (base.folder.empty()) return;
  for (ExportedWeights& set : sets) {
    if (set.is_model()) continue;
    set.metadata = {{kFolder, base.folder}, {kDigest, base.digest}};
    const char* const key = "base_model_name_or_path";
    const Value* const name = set.rules.config.find(key);
    if (name && name->is_null()) set.rules.config.set(key, base.folder);
  }
}

void check_bases(Run& run, const std::string& place) {
  if (run.services->rank != 0) return;
  for (const auto& [owner, folder] : strategy_folders(run)) {
    const std::string written = folder.name.empty() ? place : place + "/" + folder.name;
    const std::string from = place.empty() ? folder.from : folder.written ? written : "";
    if (from.empty()) continue;
    check_base(run, owner, HfFolder(from, folder.weights_file),
               place.empty()
                   ? "give the base that it was trained with (model.params.from), or leave the adapter out to "
                     "begin a new one"
                   : "put the weights of that run back");
  }
}

}  // namespace drivetrain
