// The folder of all tags: how a tag appears, is replaced and goes away, each in one moment and safe from a power cut.
//
// Everything goes through a FileCalls. Thread: any, but one call at a time that changes something. Errors: Error(io)
// naming the path; what is left of a tag that is complete elsewhere is worth a warning only.
#pragma once

#include <string>
#include <vector>

#include <drivetrain/log.h>
#include <drivetrain/toolkit/files/file_calls.h>

namespace drivetrain::sharded {

class Place {
 public:
  Place(FileCalls& calls, Log& log) : calls_(calls), log_(log) {}
  ~Place();
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  // `folder`, absolute, need not exist. `top`: the names of all folders below it may be new when the first tag appears.
  void set(const std::string& folder, const std::string& top);
  const std::string& folder() const { return folder_; }  // empty before `set`

  // For a folder that several runs may name: makes it, and keeps others from claiming it until this object ends, which
  // removes the folder again if nothing came into it. Error(config) if another run has claimed it.
  void claim();

  // Removes what killed saves have left, and brings back a tag that one of them had moved aside. Warns if it cannot.
  void clean_up();

  std::string saving(const std::string& tag) const { return folder_ + "/.saving-" + tag; }
  // The folder of a tag that has a manifest, or empty: under its name, or moved aside while it is being replaced.
  std::string find(const std::string& tag) const;
  // All that `find` would find, sorted, and folders named as tags that hold files of any ranks without a manifest.
  std::vector<std::string> tags(std::vector<std::string>& without_manifest) const;

  // Folders of saves, replacements and removals that have not ended, sorted, each with the tag it is about.
  std::vector<std::pair<std::string, std::string>> unfinished() const;

  // Gives what is in `saving(tag)`, all of which is on the disk, the tag's name; replaces a tag of that name. If it
  // throws, the tag is what it was before.
  void publish(const std::string& tag);
  void discard(const std::string& tag) noexcept;
  void remove(const std::string& tag);

 private:
  std::string path(const std::string& tag) const { return folder_ + "/" + tag; }
  void check_claim() const;  // Error(io) where the claimed folder has its name no more
  void remove_left_overs();
  void replace(const std::string& tag);
  void sync_or(const std::string& what, const std::vector<std::pair<std::string, std::string>>& undo, bool exchange);
  void sync_above();
  void drop(const std::string& path) noexcept;

  FileCalls& calls_;
  Log& log_;
  std::string folder_, top_;
  bool synced_above_ = false;
  int claim_ = -1;  // an open descriptor of the folder, with the lock of the kernel, which ends with the process
};

}  // namespace drivetrain::sharded
