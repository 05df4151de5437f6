// checkpoint_store/sharded: every rank writes its slices into files of its own; nothing is gathered.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <drivetrain/checkpoint_store.h>
#include <drivetrain/services.h>
#include <drivetrain/toolkit/files/file_calls.h>

#include "layout.h"
#include "place.h"

namespace drivetrain::sharded {

// By which a file that was replaced or changed is told from the one before.
struct FileState {
  uint64_t inode = 0;  // 0: there is none
  int64_t bytes = 0, seconds = 0, nanoseconds = 0;
  bool operator==(const FileState&) const = default;
};

class ShardedStore final : public CheckpointStore {
 public:
  struct Options {
    std::string folder;
    bool asynchronous = true;
    std::string on_error = "stop";
    bool verify = true;
  };
  static OptionTable options();
  // `calls` outlives the store and its checkpoints. `chunk_bytes`: of a file per digest, a multiple of 4096.
  ShardedStore(const Options& options, const Services& services, FileCalls& calls = system_file_calls(),
               uint64_t chunk_bytes = kChunkBytes);

  bool asynchronous() const override { return options_.asynchronous; }
  bool failure_ends_run() const override { return options_.on_error == "stop"; }
  void open_place(const std::string& output_dir, bool owner) override;
  std::vector<StoredTag> tags() const override;
  std::shared_ptr<const Checkpoint> open(const std::string& tag) const override;
  Value write(Snapshot& snapshot) override;
  void commit(const std::string& tag, int64_t step, const Value& facts, const std::vector<Value>& parts) override;
  void discard(const std::string& tag) noexcept override;
  void remove(const std::string& tag) override;
  std::vector<StoreProblem> problems() const override;
  bool open_tags(const std::string& folder) override;

 private:
  void check_open(const char* call) const;
  std::optional<StoredTag> describe(const std::string& tag) const;
  void warn_once(const std::string& line) const;

  const Options options_;
  Log& log_;
  FileCalls& calls_;
  const uint64_t chunk_bytes_;
  Place place_;
  struct Described {
    FileState state;  // of the manifest
    StoredTag tag;
  };
  mutable std::mutex mutex_;              // of what follows
  mutable std::set<std::string> warned_;  // `tags` is called after every save
  mutable std::map<std::string, Described> described_;
};

}  // namespace drivetrain::sharded
