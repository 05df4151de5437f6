// Which checkpoints stay. On rank 0: asks the policies after every save, and removes what none of them keeps; before a
// run's first checkpoint, those of steps that it does again.
//
// Only checkpoints of this run count: those of another one, which came into the same folder, are neither kept in the
// place of its own nor removed.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <drivetrain/checkpoint_policy.h>
#include <drivetrain/log.h>

#include "internal.h"
#include "plan/named_policy.h"

namespace drivetrain {

// All of it outlives the object.
struct RetentionParts {
  CheckpointStore& store;
  std::string store_id;
  std::vector<NamedPolicy> policies;
  Log& log;
  std::string run_id{};                    // of this run; empty: all checkpoints are its own
  std::vector<std::string> left_behind{};  // complete tags that go before the first commit
  std::function<void()> check_place{};     // throws where the run's folder is another one by now; empty: nobody asks
};

class DRIVETRAIN_INTERNAL Retention {
 public:
  explicit Retention(RetentionParts parts) : parts_(std::move(parts)) {}
  ~Retention() { wait(); }

  // Of steps that are done again: each is forgotten once it is gone, so if one cannot be removed, the next save begins
  // with it. Before a commit, on its thread.
  void remove_left_behind();
  // A tag that no policy keeps is removed, but never the newest. Removing large files takes a while: it is done beside
  // training where the store allows it. A folder that cannot be listed now is no reason to end a run whose checkpoint
  // is complete. After a commit, on the main thread.
  void apply();
  // Until nothing is being removed. Any thread, one at a time.
  void wait();

 private:
  void remove(const std::vector<std::string>& tags) noexcept;
  std::vector<StoredTag> own_tags();

  RetentionParts parts_;
  std::vector<std::string> strangers_said_;
  std::thread remover_;
};

// Of a checkpoint that says which run saved it, whether it was another one. Those of older versions do not say it.
inline bool is_of_another_run(const StoredTag& tag, const std::string& run_id) {
  return !run_id.empty() && !tag.run_id.empty() && tag.run_id != run_id;
}

// Training goes first where both want the same core. Of this thread.
void lower_priority();

}  // namespace drivetrain
