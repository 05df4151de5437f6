// Which files a text dataset is made of, and their bytes in two streams: training and validation.
// Value types; thread: one. Errors: config for paths that match nothing, io for files that cannot be read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace drivetrain::text {

struct Document {
  std::string relative;  // to the folder it was found under, with '/'; decides order and part
  std::string path;
};

// Each entry is a file, a folder (all regular files below it) or a glob: ? and * within a name, ** across folders.
// Paths are relative to the folder, to a glob's longest part without wildcards, or to the file's own folder. A file
// found twice counts once. Sorted by relative path, bytewise.
std::vector<Document> find_documents(const std::vector<std::string>& entries);

// Whether the document at `relative` is held out: one in twenty, by a hash of "seed:relative".
bool is_validation(int64_t seed, const std::string& relative);

struct Stream {
  std::string bytes;               // documents with a zero byte between them
  std::vector<std::string> files;  // their relative paths
  std::vector<int64_t> begins;     // where each begins in `bytes`
};
// Empty files are left out.
void read_documents(const std::vector<Document>& documents, int64_t seed, Stream& train, Stream& validation);

// Whether `path` matches `pattern` as above. Exposed for tests.
bool matches(const char* pattern, const char* path);

}  // namespace drivetrain::text
