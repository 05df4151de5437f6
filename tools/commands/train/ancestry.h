// Which checkpoints a run went on from before it saved one: where several runs went on in one folder, one of them from
// an older checkpoint, the newest by its step need not be of the run that was there last. On rank 0, main thread.
#pragma once

#include <string>
#include <vector>

#include <drivetrain/checkpoint_store.h>

#include "internal.h"

namespace drivetrain {

// Tags in the facts of a checkpoint, oldest first, some of which may be removed by now: those that its run and the runs
// before it went on from, and those of them that --resume named.
inline constexpr const char* kResumedFrom = "resumed_from";
inline constexpr const char* kAskedFor = "asked_for";
DRIVETRAIN_INTERNAL std::vector<std::string> tags_in(const Checkpoint& checkpoint, const char* fact);

// `tags`: those of the store, newest first. Returns the index of the newest tag that is `origin` or names it in `fact`;
// the index of `origin` itself if a newer checkpoint cannot be opened; tags.size() if `origin` is not there.
DRIVETRAIN_INTERNAL size_t newest_from(const CheckpointStore& store, const std::vector<StoredTag>& tags,
                                       const std::string& origin, const char* fact);

// Which run a checkpoint is of, in its facts, and which one a folder is of, in its resolved.json: a number of that run,
// which stays the same when it goes on. Empty: of a version that did not say it.
inline constexpr const char* kRunId = "run_id";
inline constexpr const char* kRunOfFolder = "_run_id";
DRIVETRAIN_INTERNAL std::string new_run_id();
DRIVETRAIN_INTERNAL std::string run_of_folder(const std::string& output_dir);

// The checkpoint that the last run in a folder went on from, by its resolved.json; empty: it began anew, or unknown.
inline constexpr const char* kGoesOnFrom = "_goes_on_from";
DRIVETRAIN_INTERNAL std::string last_origin(const std::string& output_dir);

}  // namespace drivetrain
