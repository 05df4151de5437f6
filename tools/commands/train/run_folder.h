// The output folder of a run: claimed by rank 0, by one run at a time. A run that is there goes on or stays as it is.
#pragma once

#include <memory>
#include <string>

#include <drivetrain/value.h>

#include "internal.h"
#include "process/guarded_descriptors.h"

namespace drivetrain {

// Whether it holds a run: its config or its figures.
DRIVETRAIN_INTERNAL bool holds_run(const std::string& path);
// Throws Error(config) if `path` holds a run; what that run's writers left half written is removed if they are gone.
DRIVETRAIN_INTERNAL void check_run_folder(const std::string& path);

// A folder as it was when the object was made, whatever lies under its name later: somebody may move it away from under
// a run, and begin another run under the old name. Thread: any.
class DRIVETRAIN_INTERNAL HeldFolder {
 public:
  // A folder that cannot be opened is not held: nothing is known of it.
  explicit HeldFolder(const std::string& path);
  ~HeldFolder();
  HeldFolder(const HeldFolder&) = delete;
  HeldFolder& operator=(const HeldFolder&) = delete;

  int descriptor() const { return descriptor_; }  // -1: it is not held
  bool is_in_place() const;                       // true as well where that cannot be found out
  // Error(io) if another folder, or none, has the path by now.
  void check() const;
  // Where it lies now; empty: nobody knows, or it was removed.
  std::string whereabouts() const;

 private:
  const std::string path_;
  const int descriptor_;
  GuardedDescriptor guard_{descriptor_};
};

// Held by rank 0 as long as a run is at work in a folder. It is the kernel's lock of the folder itself: it leaves no
// file, and it is gone with the process that held it.
class DRIVETRAIN_INTERNAL FolderLock {
 public:
  // The folder is there. Error(config) if another run holds it, Error(io) if it cannot be opened.
  explicit FolderLock(const std::string& path);

  const HeldFolder& folder() const { return folder_; }

 private:
  const HeldFolder folder_;
};

// Creates the folder (and its parents), locks it, and takes it by its first file, resolved.json: of several runs that
// want the same folder at the same time one gets it, the others throw Error(config). Removes what a killed run left
// half written there. Error(io) if the folder cannot be made or written to.
DRIVETRAIN_INTERNAL std::unique_ptr<FolderLock> take_run_folder(const std::string& path,
                                                                const std::string& resolved_json);

// The whole file or none (state/new_file.h). Error(io) if the disk is full.
DRIVETRAIN_INTERNAL void write_text_file(const std::string& path, const std::string& text);

// A file of the run's folder, whole or not at all (state/new_file.h). What has the name gives way, a symbolic link too:
// it is not followed, since another user may have made it. Error(io) if the disk is full.
DRIVETRAIN_INTERNAL void write_run_file(const std::string& path, const std::string& text);

}  // namespace drivetrain
