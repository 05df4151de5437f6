// Exceptions of LibTorch, CUDA and the C++ library that a user's situation causes and no bug of ours: memory, threads,
// files, a GPU that is full, taken or broken. Each has a code of the contract and a remedy. Thread: any; of a GPU it
// says what the thread knows of its rank (device_errors.h).
#pragma once

#include <exception>
#include <optional>
#include <string>

#include <drivetrain/error.h>

#include "internal.h"

namespace drivetrain {

struct Situation {
  ErrorCode code = ErrorCode::internal;
  std::string what;    // "out of memory: CUDA out of memory. Tried to allocate ..."
  std::string remedy;  // a sentence

  std::string text() const { return what + "\n   " + remedy; }
};

// Nothing for all other exceptions, among them every Error, which has its code already; but what is nested in an Error
// (std::throw_with_nested) counts before it.
DRIVETRAIN_INTERNAL std::optional<Situation> situation_of(const std::exception& e);

}  // namespace drivetrain
