// The checkpoints of a folder, through the store that wrote them, for tools: nothing is built or trained, and the
// folder is only read. Main thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <drivetrain/checkpoint_store.h>
#include <drivetrain/services.h>

#include "internal.h"
#include "plugin/registry.h"
#include "plugin_calls/plugin_call.h"

namespace drivetrain {

inline constexpr const char* kNewest = "newest";  // in place of a tag

// A store made for a tool, and what it needs to live.
struct StoreObject {
  std::string name, id;  // id: "checkpoint_store/NAME"
  std::shared_ptr<Log> log;
  std::shared_ptr<Store> exchange;
  std::shared_ptr<const Services> services;
  std::shared_ptr<CheckpointStore> store;
};

// A call into a store. Its errors name the file and say what to do; the name of the call would tell a user nothing.
template <class Inside>
decltype(auto) store_call(const std::string& id, const char* hook, const Inside& inside) {
  return plugin_call({.id = id, .hook = hook, .keeps_errors = true}, inside);
}

// `name`: "" for the default store. `params`: its options, an object; null: their defaults. `origin`: of the options,
// for messages. Error(plugin) if it is not installed, Error(config) if the options are wrong.
DRIVETRAIN_INTERNAL StoreObject make_store(const Registry& registry, const std::string& name, const Value& params,
                                           const std::string& origin);

class DRIVETRAIN_INTERNAL StoredRun {
 public:
  // `folder`: output_dir of a run, or the folder of its tags, which may be a copy without the run. The store is
  // `store_name`; if that is "", the one of the run's resolved.json; without that, the default one. Error(config) if
  // the folder is not there or holds nothing of that store.
  StoredRun(const Registry& registry, const std::string& folder, const std::string& store_name);

  const std::string& folder() const { return folder_; }  // as given
  const StoreObject& store() const { return store_; }
  const std::vector<StoredTag>& tags() const { return tags_; }             // complete, newest first
  const std::vector<StoreProblem>& problems() const { return problems_; }  // CheckpointStore::problems
  std::vector<std::string> damage(const std::string& tag) const;           // texts of problems() about a tag
  std::vector<std::string> damaged_tags() const;                           // that tags() does not list, newest first

  // Whether the store still lists the tag: a run that is at work may have removed it.
  bool is_there_now(const std::string& tag) const;

  // Whether `word` names a checkpoint here, complete or not; "newest" does.
  bool knows(const std::string& word) const;
  // The complete tag of that name; "" and "newest": the newest. Error(config) if there is none of that name,
  // Error(checkpoint) if it is damaged; both name what there is.
  const StoredTag& find(const std::string& word) const;
  // Error(checkpoint) with the command that tells more, if it is damaged.
  std::shared_ptr<const Checkpoint> open(const StoredTag& tag) const;

 private:
  void find_place(const Registry& registry, const std::string& store_name);
  [[noreturn]] void throw_nothing_here() const;

  const std::string folder_;
  StoreObject store_;
  std::vector<StoredTag> tags_;
  std::vector<StoreProblem> problems_;
};

// "`drivetrain checkpoint verify FOLDER` ..." behind a line break: what to do about damage.
std::string verify_hint(const std::string& folder);

// The member of facts at a path of keys; null where one is missing.
const Value* fact(const Value& facts, const std::vector<std::string>& path);

}  // namespace drivetrain
