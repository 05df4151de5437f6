// Files and folders that survive a power cut: what these functions have written is on the disk when they return.
//
// All of them go through a FileCalls. Thread: any. Errors: Error(io) naming the path, what was tried, the bytes wanted
// and the bytes free, and what to do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <drivetrain/error.h>

#include <drivetrain/toolkit/files/file_calls.h>

namespace drivetrain {

// "PATH: cannot WHAT (N bytes wanted; M bytes are free there): No space left on device" and what to do about it.
// `code`: the errno of the call. `wanted`: the size of the file; 0 leaves it out.
Error file_error(const std::string& path, const std::string& what, int code, uint64_t wanted = 0);

// The folder that holds `path`; "." for a name alone.
std::string parent_folder(const std::string& path);

// A new file that is written and closed by one owner. The destructor closes it and leaves what was written.
class OutputFile {
 public:
  // How bytes come to the disk: through the page cache, or past it, which takes less of the processor. Past it where
  // the file system can, and up to the first write whose offset, size or memory is no multiple of 4096.
  enum class Way { page_cache, direct };
  // Replaces what is at `path`. `bytes`: the final size. The space is reserved at once where the file system can, so
  // that a full disk is found before anything is written.
  OutputFile(FileCalls& calls, const std::string& path, uint64_t bytes, Way way = Way::page_cache);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write_at(uint64_t offset, const void* data, uint64_t bytes);
  // Puts everything on the disk and closes the file. The name is on the disk only after sync_folder of its folder.
  void finish();

  const std::string& path() const { return path_; }

 private:
  void use_page_cache();

  FileCalls& calls_;
  const std::string path_;
  const uint64_t bytes_;
  int descriptor_ = -1;
  bool direct_ = false;
};

// The whole file in one call, on the disk.
void write_durable_file(FileCalls& calls, const std::string& path, const std::string& text);

// Puts the names in a folder on the disk. File systems that cannot sync a folder and say so are left alone.
void sync_folder(FileCalls& calls, const std::string& folder);

// Makes the folder and those above it where they are missing. Does not put their names on the disk.
void make_folders(FileCalls& calls, const std::string& path);

// Removes a folder with everything in it; no symbolic link is followed. Nothing there: no error.
void remove_folder_tree(FileCalls& calls, const std::string& path);

// Names in a folder, sorted; empty if there is no such folder.
std::vector<std::string> names_in(const std::string& folder);

}  // namespace drivetrain
