// Checkpoints as files in a folder, one per slice of a tensor.
//
// The base class has tags, digests, left-overs and damage; this plugin says where bytes are kept. Write the four
// functions of a BlobPlace anew for another place, such as an object storage.
#include <drivetrain/services.h>
#include <drivetrain/toolkit/checkpoint/blob_store.h>
#include <drivetrain/toolkit/files/durable.h>
#include <drivetrain/toolkit/torch_files/stored_file.h>

#include <cerrno>
#include <filesystem>

namespace {

using namespace drivetrain;

namespace fs = std::filesystem;

// An open file: it stays readable when its name is gone.
class FileBlob final : public Blob {
 public:
  explicit FileBlob(const std::string& path) : file_(path) {}
  uint64_t bytes() const override { return file_.bytes(); }
  void read(void* into) const override { file_.read(0, into, file_.bytes()); }

 private:
  const StoredFile file_;
};

class FilePlace final : public BlobPlace {
 public:
  explicit FilePlace(std::string folder) : folder_(std::move(folder)) {}

  // Under another name first: the rename is the one moment in which the blob is there.
  void put(const std::string& name, const void* data, uint64_t bytes) override {
    const std::string path = path_of(name), unfinished = path + ".part";
    make_folders(calls_, parent_folder(path));
    OutputFile file(calls_, unfinished, bytes);
    file.write_at(0, data, bytes);
    file.finish();
    if (calls_.rename(unfinished, path) != 0) throw file_error(path, "rename the file", errno);
    sync_folder(calls_, parent_folder(path));
    sync_folder(calls_, folder_);
  }

  std::shared_ptr<const Blob> open(const std::string& name) const override {
    if (!fs::exists(path_of(name))) return nullptr;
    return std::make_shared<FileBlob>(path_of(name));
  }

  std::vector<std::string> names() const override {
    std::vector<std::string> list;
    for (const std::string& tag : names_in(folder_))
      for (const std::string& file : names_in(path_of(tag))) list.push_back(concat(tag, "/", file));
    return list;
  }

  void remove(const std::string& name) override {
    const std::string path = path_of(name);
    if (calls_.remove_file(path) != 0 && errno != ENOENT) throw file_error(path, "remove the file", errno);
    if (names_in(parent_folder(path)).empty()) calls_.remove_folder(parent_folder(path));
  }

 private:
  std::string path_of(const std::string& name) const { return concat(folder_, "/", name); }

  const std::string folder_;
  FileCalls& calls_ = system_file_calls();
};

class NewPlugin final : public BlobStore {
 public:
  struct Options {
    std::string folder = "checkpoints";
  };
  static OptionTable options() {
    return table<Options>().field("folder", &Options::folder, "of the tags: in the run's folder, or absolute");
  }
  NewPlugin(const Options& options, const Services&) : BlobStore("checkpoint_store/new_plugin", options.folder) {}

 protected:
  std::shared_ptr<BlobPlace> place_at(const std::string& folder) const override {
    return std::make_shared<FilePlace>(folder);
  }
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::CheckpointStore, "new_plugin", NewPlugin)
