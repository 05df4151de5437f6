#include "train/beginning.h"

#include <drivetrain/toolkit/text.h>

#include "checkpoint/retention.h"
#include "log/log_console.h"
#include "plugin_calls/plugin_call.h"
#include "report/facts.h"
#include "train/ancestry.h"
#include "train/final_weights.h"

namespace drivetrain {
namespace {

constexpr const char* kFolderTaken = "run/folder";
constexpr const char* kResumedTag = "run/resumed_tag";  // "=" and the tag

// A folder with a run, of which no checkpoint can be used where this config keeps them. `strangers`: other runs' that
// are there.
void nothing_to_go_on_from(const std::string& folder, const CheckpointStore* store) {
  const std::vector<StoredTag> strangers = store ? store->tags() : std::vector<StoredTag>();
  std::vector<std::string> damaged;
  for (const StoreProblem& problem : store ? store->problems() : std::vector<StoreProblem>())
    if (!problem.left_over) damaged.push_back(problem.text);
  if (strangers.empty() && !damaged.empty())
    throw fail(ErrorCode::checkpoint, "output_dir ", folder, " holds a run of which no checkpoint is whole\n   ",
               join(damaged, "\n   "), "\n   bring one again from a place where it is whole, or begin anew in another ",
               "folder: --set output_dir=FOLDER\n   what is damaged: drivetrain checkpoint verify ", folder);
  std::string names;
  for (const StoredTag& tag : strangers) names += (names.empty() ? "" : ", ") + tag.tag;
  try {
    check_run_folder(folder);
  } catch (const Error& e) {
    throw fail(e.code(), e.what(),
               !store ? "\n   it cannot be gone on with: checkpoint_store is switched off"
               : names.empty()
                   ? "\n   it cannot be gone on with: no complete checkpoint is where checkpoint_store keeps "
                     "them"
                   : concat("\n   it cannot be gone on with: the checkpoints that are there (", names,
                            ") are of other runs\n   go on from one all the same: --resume ", strangers.front().tag));
  }
}

// Another run may hold the folder, and rank 0 be refused.
bool is_taken(Store& store) {
  try {
    return !store.get(kFolderTaken, 1).empty();
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

void Beginning::hold_folder() {
  if (env_.rank != 0) return;
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

void Beginning::open_place(Run& run) const {
  CheckpointStore* const store = run.plugins.checkpoint_store.get();
  const std::string& folder = request_.settings.output_dir;
  if (store && (!run.plugins.checkpoint_policies.empty() || holds_run(folder)))
    plugin_call({run.plan.id_of(CheckpointStore::kKind), "open_place"},
                [&] { store->open_place(folder, env_.rank == 0); });
}

void Beginning::choose(Run& run) {
  open_place(run);
  if (env_.rank != 0) return;
  choose_on_rank_0(run);
  if (env_.world_size > 1) request_.setup.store->set(kResumedTag, "=" + tag());
}

void Beginning::hear() {
  if (env_.rank != 0) on_.tag = request_.setup.store->get(kResumedTag, timeout_s()).substr(1);
}

void Beginning::choose_on_rank_0(Run& run) {
  const std::string& folder = request_.settings.output_dir;
  const CheckpointStore* const store = run.plugins.checkpoint_store.get();
  if (lock_) {
    const std::vector<StoredTag> tags = store ? own_tags(*store, *run.log) : std::vector<StoredTag>();
    begins_again_ = tags.empty() && folder == request_.begun_folder;
    if (tags.empty() && !begins_again_) nothing_to_go_on_from(folder, store);
    if (!begins_again_)
      on_ = choose_tag(*store, tags, request_.resume, folder,
                       {resolved_value(run, *request_.registry), run.plan.data.notes,
                        declared_effects(*request_.registry), run.plan.model.mixture.experts > 0},
                       !lacks_final(run), *run.log);
  } else if (request_.resume.mode == ResumeOption::Mode::tag) {
    throw fail(ErrorCode::config, "--resume ", request_.resume.tag, ": output_dir ", folder,
               " holds no run\n   leave --resume out to begin one, or name the folder with --set output_dir=FOLDER");
  } else if (store && !run.plugins.checkpoint_policies.empty()) {
    check_no_tags(*store, folder);
  }
  run_id_ = !on_.run_id.empty() ? on_.run_id : lock_ ? run_of_folder(folder) : "";
  if (run_id_.empty()) run_id_ = new_run_id();
}

void Beginning::write_config(const Run& run, const Value& facts) {
  const std::string& folder = run.plan.settings.output_dir;
  Value resolved = resolved_value(run, *request_.registry);
  resolved.set("_resolved", facts);
  resolved.set(kRunOfFolder, run_id_);
  if (!tag().empty()) resolved.set(kGoesOnFrom, tag());
  if (lock_)
    write_run_file(folder + "/resolved.json", resolved.to_json(2) + "\n");
  else
    lock_ = take_run_folder(folder, resolved.to_json(2) + "\n");
}

// A rank that fails here ends the others through the communicator or the launcher.
void Beginning::take_folder(const Run& run, const Value& facts, RunFlight& flight) {
  const std::string& folder = run.plan.settings.output_dir;
  Store& store = *request_.setup.store;
  if (env_.rank == 0) {
    write_config(run, facts);
    attach_file(*run.log, folder + "/log.txt");
    flight.take_folder(folder);
    store.set(kFolderTaken, folder);
    return;
  }
  note_elsewhere(*run.log, folder + "/log.txt", [store = request_.setup.store] { return is_taken(*store); });
  if (!run.plan.settings.flight_record) return;
  store.get(kFolderTaken, timeout_s());
  flight.join_folder(folder);
}

void Beginning::watch_folder(const Run& run) {
  if (env_.rank != 0) watched_.emplace(run.plan.settings.output_dir);
}

void Beginning::check_folder() const {
  if (lock_) lock_->folder().check();
  if (watched_) watched_->check();
}

void Beginning::follow_folder(Run& run) const {
  if (!lock_ || lock_->folder().is_in_place()) return;
  const std::string now = lock_->folder().whereabouts();
  if (now.empty()) lock_->folder().check();
  run.log->warning(concat("output_dir ", run.plan.settings.output_dir, " was moved to ", now,
                          " while the run was at work in it: what is written at its end goes there"));
  run.plan.settings.output_dir = now;
}

}  // namespace drivetrain
