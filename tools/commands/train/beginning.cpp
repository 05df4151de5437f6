#include "train/beginning.h"

#include <drivetrain/toolkit/text.h>

#include "checkpoint/ancestry.h"
#include "checkpoint/retention.h"
#include "log/log_console.h"
#include "report/facts.h"
#include "train/final_weights.h"

namespace drivetrain {
namespace {

// A folder with a run, of which no checkpoint is where this config keeps them. `strangers`: other runs' that are there.
void nothing_to_go_on_from(const std::string& folder, bool has_store, const std::vector<StoredTag>& strangers) {
  std::string names;
  for (const StoredTag& tag : strangers) names += (names.empty() ? "" : ", ") + tag.tag;
  try {
    check_run_folder(folder);
  } catch (const Error& e) {
    throw fail(e.code(), e.what(),
               !has_store ? "\n   it cannot be gone on with: checkpoint_store is switched off"
               : names.empty()
                   ? "\n   it cannot be gone on with: no complete checkpoint is where checkpoint_store keeps "
                     "them"
                   : concat("\n   it cannot be gone on with: the checkpoints that are there (", names,
                            ") are of other runs\n   go on from one all the same: --resume ", strangers.front().tag));
  }
}

}  // namespace

void Beginning::hold_folder() {
  const std::string& folder = request_.settings.output_dir;
  if (request_.resume.mode == ResumeOption::Mode::never) check_run_folder(folder);
  if (holds_run(folder)) lock_ = std::make_unique<FolderLock>(folder);
}

// Those of other runs came here by hand, or from a run whose folder was moved away while it was at work.
std::vector<StoredTag> Beginning::own_tags(const CheckpointStore& store, Log& log) const {
  std::vector<StoredTag> tags = store.tags();
  if (request_.resume.mode == ResumeOption::Mode::tag) return tags;
  const std::string run = run_of_folder(request_.settings.output_dir);
  std::erase_if(tags, [&](const StoredTag& tag) {
    const bool foreign = is_of_another_run(tag, run);
    if (foreign)
      log.warning(concat("the checkpoint ", tag.tag, " is of another run than this folder's and is passed over; ",
                         "--resume ", tag.tag, " goes on from it"));
    return foreign;
  });
  return tags;
}

void Beginning::choose(Run& run) {
  const std::string& folder = request_.settings.output_dir;
  const CheckpointStore* const store = run.plugins.checkpoint_store.get();
  if (lock_) {
    const std::vector<StoredTag> tags = store ? own_tags(*store, *run.log) : std::vector<StoredTag>();
    begins_again_ = tags.empty() && folder == request_.begun_folder;
    if (tags.empty() && !begins_again_)
      nothing_to_go_on_from(folder, store != nullptr, store ? store->tags() : std::vector<StoredTag>());
    if (!begins_again_)
      on_ = choose_tag(*store, tags, request_.resume, folder,
                       {resolved_value(run, *request_.registry), run.plan.data.notes}, !lacks_final(run), *run.log);
  } else if (request_.resume.mode == ResumeOption::Mode::tag) {
    throw fail(ErrorCode::config, "--resume ", request_.resume.tag, ": output_dir ", folder,
               " holds no run\n   leave --resume out to begin one, or name the folder with --set output_dir=FOLDER");
  } else if (store && !run.plugins.checkpoint_policies.empty()) {
    check_no_tags(*store, folder);
  }
  run_id_ = !on_.run_id.empty() ? on_.run_id : lock_ ? run_of_folder(folder) : "";
  if (run_id_.empty()) run_id_ = new_run_id();
}

void Beginning::take_folder(const Run& run, const Value& facts) {
  const std::string& folder = run.plan.settings.output_dir;
  Value resolved = resolved_value(run, *request_.registry);
  resolved.set("_resolved", facts);
  resolved.set(kRunOfFolder, run_id_);
  if (!tag().empty()) resolved.set(kGoesOnFrom, tag());
  if (lock_)
    write_run_file(folder + "/resolved.json", resolved.to_json(2) + "\n");
  else
    lock_ = take_run_folder(folder, resolved.to_json(2) + "\n");
  attach_file(*run.log, folder + "/log.txt");
}

}  // namespace drivetrain
