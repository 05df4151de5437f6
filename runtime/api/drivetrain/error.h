// The only exception type that may cross the border between plugin and runtime, and the exit codes it maps to.
//
// An error says what was wanted, what was found, where, and what to do. Its type information exists once, in
// libdrivetrain.so, so that the runtime catches what a plugin throws. Thread: any.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

#include <drivetrain/export.h>

DRIVETRAIN_CONTRACT(error)

namespace drivetrain {

// The values are the exit codes of the contract.
enum class ErrorCode : int {
  internal = 1,  // a bug of the runtime or of a plugin
  config = 2,    // usage or configuration
  plugin = 3,    // a plugin is missing, refused, cannot be created or fails
  out_of_memory = 4,
  communication = 5,  // a peer is lost or late
  checkpoint = 6,     // a checkpoint that does not fit the run
  numeric = 7,        // the loss or a gradient is not finite
  io = 8,             // disk full, unreadable data
};

class DRIVETRAIN_API Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message);
  ~Error() override;  // out of line: the key function

  ErrorCode code() const noexcept { return code_; }

  // The same error with "in <where>: " in front.
  // `where` reads like "data_parallel/ddp, hook before_forward, unit block.7".
  Error within(const std::string& where) const;

 private:
  ErrorCode code_;
};

// Joins anything that can be streamed: concat("expected ", 3, " tensors").
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

// throw fail(ErrorCode::config, "heads ", h, " do not divide ", d)
template <class... Parts>
[[nodiscard]] Error fail(ErrorCode code, const Parts&... parts) {
  return Error(code, concat(parts...));
}

}  // namespace drivetrain
