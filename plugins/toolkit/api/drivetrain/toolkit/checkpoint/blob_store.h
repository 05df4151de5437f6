// A checkpoint store on top of named blobs: whoever can keep bytes under a name has tags that appear in one moment,
// digests, left-overs and damage that is named. A plugin writes a BlobPlace, four functions:
//
//   class Mine : public BlobStore {
//     Mine(const Options& options, const Services&) : BlobStore("checkpoint_store/mine", options.folder) {}
//     std::shared_ptr<BlobPlace> place_at(const std::string& folder) const override { ... }
//   };
//
//   TAG/manifest         one blob, put last: facts, and which blob holds which part of which tensor, with digests
//   TAG/SAVE-RANK-N      a slice each; SAVE differs from save to save, so a tag is replaced by putting its manifest
//
// A slice is read as a whole, also for a part of it. Thread: as checkpoint_store.h says.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <drivetrain/checkpoint_store.h>

namespace drivetrain {

// A blob that is open for reading; it stays readable if its name is removed or put anew. Const calls from any thread.
class Blob {
 public:
  virtual ~Blob();
  virtual uint64_t bytes() const = 0;
  // All bytes, into memory of that size. Error(checkpoint) or Error(io).
  virtual void read(void* into) const = 0;
};

// Where blobs are kept. Names have letters, digits, "-", "_", "." and one "/". Errors: Error(io).
class BlobPlace {
 public:
  virtual ~BlobPlace();
  // On return the bytes are safe from a power cut. A name that is there is replaced in one moment.
  virtual void put(const std::string& name, const void* data, uint64_t bytes) = 0;
  // Null if there is no such name.
  virtual std::shared_ptr<const Blob> open(const std::string& name) const = 0;
  virtual std::vector<std::string> names() const = 0;  // of all blobs, also of those whose put did not end
  virtual void remove(const std::string& name) = 0;
};

class BlobStore : public CheckpointStore {
 public:
  ~BlobStore() override;
  void open_place(const std::string& output_dir, bool owner) override;
  std::vector<StoredTag> tags() const override;
  std::shared_ptr<const Checkpoint> open(const std::string& tag) const override;
  Value write(Snapshot& snapshot) override;
  void commit(const std::string& tag, int64_t step, const Value& facts, const std::vector<Value>& parts) override;
  void discard(const std::string& tag) noexcept override;
  void remove(const std::string& tag) override;
  std::vector<StoreProblem> problems() const override;
  bool open_tags(const std::string& folder) override;

 protected:
  // `plugin`: "checkpoint_store/mine". `folder`: of the tags, relative to the run's folder or absolute.
  BlobStore(std::string plugin, std::string folder);

  // Called once, by open_place or open_tags. `folder`: absolute; need not exist, and is not created yet.
  virtual std::shared_ptr<BlobPlace> place_at(const std::string& folder) const = 0;

 private:
  std::vector<std::string> blobs_of(const std::string& tag) const;
  void remove_unused(const std::string& tag);

  const std::string plugin_, folder_;
  std::string path_;
  std::shared_ptr<BlobPlace> place_;
};

}  // namespace drivetrain
