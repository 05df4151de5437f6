// The data files of a checkpoint, read in chunks whose digests are checked before a call returns.
//
// The files stay open, so that they can be read after the tag was removed or replaced. Memory: one chunk for each
// thread that reads, and the last few chunks. Thread: any. Errors: Error(checkpoint) naming file, byte range, what was
// expected and found; Error(io) if the system cannot read.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <drivetrain/toolkit/files/file_calls.h>

#include "chunked_file.h"
#include "index.h"

namespace drivetrain::sharded {

// Memory with a chunk in it.
struct Chunk {
  size_t file = 0;
  uint64_t number = 0;
  bool filled = false;          // with checked bytes of that chunk
  uint64_t begin = 0, end = 0;  // in the file
  AlignedMemory memory;
  uint64_t capacity = 0;
};

// What is wrong with a range of a file's bytes.
struct FileProblem {
  std::string text;  // with the path
  uint64_t begin = 0, end = 0;
};

class ChunkReader {
 public:
  // `check`: whether `read` checks digests.
  ChunkReader(FileCalls& calls, bool check) : calls_(calls), check_(check) {}
  ~ChunkReader();
  ChunkReader(const ChunkReader&) = delete;
  ChunkReader& operator=(const ChunkReader&) = delete;

  // Opens the file. A file that is missing or has another size is an error only when it is read.
  void add(const std::string& path, RankIndex index);

  // The chunk with byte `offset` of the file, to be given back with `done`. `until`: the byte behind the last one that
  // the caller is going to read, so that the system reads ahead.
  Chunk read(size_t file, uint64_t offset, uint64_t until) const;
  void done(Chunk chunk) const;

  // Reads the whole chunk that begins at byte `offset` to `into`. After an error `into` holds anything.
  void read_whole(size_t file, uint64_t offset, uint64_t until, char* into) const;
  // Of a chunk of this file.
  uint64_t chunk_bytes(size_t file) const { return files_[file].index.chunk_bytes; }

  // Every problem of a file: one that makes it unreadable, or one for each damaged chunk.
  std::vector<FileProblem> problems(size_t file) const;

  const RankIndex& index(size_t file) const { return files_[file].index; }
  const std::string& path(size_t file) const { return files_[file].path; }
  size_t size() const { return files_.size(); }

 private:
  struct File {
    std::string path;
    RankIndex index;
    int descriptor = -1;
    std::string problem;  // why it cannot be read; with its path
  };
  Chunk take(size_t file, uint64_t number) const;
  void read_ahead(const File& file, uint64_t chunk_end, uint64_t until) const;
  void load(const File& file, Chunk& chunk, bool check) const;
  void load(const File& file, uint64_t begin, uint64_t end, char* into, bool check) const;
  uint64_t read_bytes(const File& file, char* into, uint64_t begin, uint64_t end) const;
  std::string size_problem(const File& file) const;
  std::string foreign(const File& file) const;
  Error damage(const File& file, uint64_t begin, uint64_t end, uint64_t found_bytes, const std::string& digest) const;

  FileCalls& calls_;
  const bool check_;
  std::vector<File> files_;
  mutable std::mutex mutex_;         // of free_
  mutable std::vector<Chunk> free_;  // the last one was used last
};

}  // namespace drivetrain::sharded
