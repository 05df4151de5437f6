// Where a run goes on: which checkpoint of its folder, whether the config still fits it, and its state into the run.
#pragma once

#include <memory>
#include <string>

#include <drivetrain/checkpoint_store.h>

#include "checkpoint/saver.h"
#include "internal.h"
#include "run/run.h"
#include "train/config_changes.h"

namespace drivetrain {

// What `--resume` says.
struct ResumeOption {
  enum class Mode { automatic, never, tag } mode = Mode::automatic;
  bool given = false;  // by the user; false: the default
  std::string tag{};   // of Mode::tag
};
// "auto", "never" or a tag.
DRIVETRAIN_INTERNAL ResumeOption read_resume(const std::string& text);

// Where a run in a folder with a run goes on.
struct GoOn {
  std::string tag;
  std::string run_id;                                // of the run that saved it; empty: unknown
  std::vector<std::string> resumed_from, asked_for;  // for the facts of the run's own checkpoints, see ancestry.h
  // Checkpoints of steps behind it, which are done again. They are removed before the next checkpoint is complete, so
  // that the newest one is never of the run that was left.
  std::vector<std::string> left_behind;
};

// Error(config) if checkpoints are where those of a new run are to be kept. Its own would be older than these: policies
// would keep these, and a restart would go on from them. On rank 0, main thread.
DRIVETRAIN_INTERNAL void check_no_tags(const CheckpointStore& store, const std::string& output_dir);

// What a checkpoint's run is compared with.
struct RunNow {
  Value config;  // as resolved.json has it
  Value data;    // DataFacts::notes
  std::vector<DeclaredEffects> declared;
  bool mixture = false;  // the model has experts
};

// The tag that a run in a folder with a run goes on from. On rank 0, main thread; `tags`: the store's, not empty;
// `finished`: nothing is left to do once all steps are done. Says in the log what
// differs from the config of that run. Error(config) if there is nothing to go on from, or if a difference changes the
// numbers and the user did not say that the run is to go on; Error(checkpoint) if the newest checkpoint cannot be read,
// naming the one before it.
DRIVETRAIN_INTERNAL GoOn choose_tag(const CheckpointStore& store, const std::vector<StoredTag>& tags,
                                    const ResumeOption& option, const std::string& output_dir, const RunNow& now,
                                    bool finished, Log& log);

// The state of `tag` into a run that is built and its trainer. Every rank; collective. Returns, on rank 0, a
// warning if the checkpoint holds what no rank has a use for.
DRIVETRAIN_INTERNAL std::string resume_from(const std::string& tag, Run& run, Trainer& trainer,
                                            const RankEnvironment& env);

}  // namespace drivetrain
