// Names of files and folders, and errors: what all parts of the store agree on. Pure functions; any thread.
//
//   FOLDER/TAG/rank-00000.safetensors   the slices of rank 0
//   FOLDER/TAG/rank-00000.index.json    where each slice is, and a digest per chunk of the file
//   FOLDER/TAG/manifest.json            written last: which files belong together, and the digest of each index
//   FOLDER/.saving-TAG                  a checkpoint that is being written, or what a killed save has left
//   FOLDER/.replaced-TAG                the one before, where a file system cannot exchange two names
//   FOLDER/.removing-TAG                a checkpoint that is being removed
#pragma once

#include <cstdint>
#include <string>

#include <drivetrain/error.h>

namespace drivetrain::sharded {

inline constexpr uint64_t kChunkBytes = uint64_t{1} << 20;  // of a file, per digest
inline constexpr uint64_t kAlignment = 4096;                // of chunks and of the data, so that direct I/O is possible
inline constexpr int64_t kVersion = 1;                      // of the form on the disk

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr const char* kSaving = ".saving-";
inline constexpr const char* kReplaced = ".replaced-";
inline constexpr const char* kRemoving = ".removing-";

std::string data_name(int64_t rank);
std::string index_name(int64_t rank);

// Letters, digits, "-", "_" and "."; not empty, not hidden, at most 200 bytes.
bool is_tag(const std::string& tag);
void check_tag(const std::string& tag);  // Error(checkpoint)

// An error about what was written: text and what to do. Which other checkpoint there is, says who asked for this one.
template <class... Parts>
Error damaged(const std::string& path, const Parts&... parts) {
  return fail(ErrorCode::checkpoint, path, ": ", parts...,
              "\n   copy this checkpoint again from a place where it is whole");
}

// A file that a later release has written. It is not damaged, so it is not passed over.
class NewerVersion : public Error {
 public:
  NewerVersion(const std::string& path, int64_t version)
      : Error(ErrorCode::checkpoint,
              concat(
                  path, ": is of version ", version, ", and this program knows up to ", kVersion,
                  "\n   it was written by a newer version of Drivetrain: use that one, or move this checkpoint away")) {
  }
};

}  // namespace drivetrain::sharded
