// How every reader of the runtime opens a file that somebody named: without waiting for a writer, and with one clear
// error for what is no file. No state; any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include <drivetrain/error.h>

#include "base/piped.h"
#include "internal.h"

namespace drivetrain {

enum class InputKind { file, file_or_pipe };

// An open descriptor, closed with the object. Reads from a pipe do not block.
class DRIVETRAIN_INTERNAL InputFile {
 public:
  // `wanted`: "a JSON file". Throws Error(config) if there is nothing at the path, or neither a regular file nor, where
  // that is allowed, a pipe; Error(`unreadable`) if it cannot be opened otherwise.
  InputFile(const std::string& path, InputKind kind, const std::string& wanted,
            ErrorCode unreadable = ErrorCode::config);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  int descriptor() const { return descriptor_; }
  uint64_t size() const { return size_; }  // of a regular file, when it was opened
  bool is_pipe() const { return is_pipe_; }

 private:
  int descriptor_ = -1;
  uint64_t size_ = 0;
  bool is_pipe_ = false;
};

// All of a file of settings: at most 64 MB, and from a pipe within `pipe_time`. Throws Error(config).
DRIVETRAIN_INTERNAL std::string read_text(const std::string& path, InputKind kind, const std::string& wanted,
                                          std::chrono::duration<double> pipe_time = kPipeTime);

}  // namespace drivetrain
