// How a command ends: which of the things that an exception says becomes its exit code and its one error.
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <exception>
#include <new>
#include <stdexcept>

#include <drivetrain/error.h>

#include "cli/parse.h"
#include "shared/run_command.h"

namespace drivetrain::test {
namespace {

struct Ended {
  int code = -1;
  std::string told;  // on the standard error output
};

// Of the command that `run` stands for, by the words that a user types.
Ended ended(int (*run)(const cli::Arguments&), const char* library_has = "doctor") {
  testing::internal::CaptureStderr();
  Ended end;
  std::exception_ptr left;  // gtest's capture ends in any case
  try {
    end.code = run_command(cli::parse({"doctor"}), {{library_has, run}});
  } catch (...) {
    left = std::current_exception();
  }
  end.told = testing::internal::GetCapturedStderr();
  if (left) std::rethrow_exception(left);
  return end;
}

c10::AcceleratorError gpu_says(int number, const char* text) {
  return c10::AcceleratorError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, number, text);
}

// As a communicator does that hears of it within its own library.
template <class Cause>
[[noreturn]] void lose_peer(const Cause& cause) {
  try {
    throw cause;
  } catch (...) {
    std::throw_with_nested(fail(ErrorCode::communication, "lost the peers"));
  }
}

void expect_end(const Ended& end, ErrorCode code, const char* told, const char* not_told) {
  EXPECT_EQ(end.code, static_cast<int>(code)) << end.told;
  EXPECT_EQ(end.told.find("drivetrain: error: "), 0U) << end.told;
  EXPECT_NE(end.told.find(told), std::string::npos) << end.told;
  EXPECT_EQ(end.told.find(not_told), std::string::npos) << end.told;
}

TEST(RunCommand, what_a_gpu_says_within_an_error_is_the_end_and_the_error_around_it_is_not) {
  expect_end(ended([](const cli::Arguments&) -> int { lose_peer(gpu_says(2, "CUDA error: out of memory")); }),
             ErrorCode::out_of_memory, "out of memory", "lost the peers");
  expect_end(
      ended([](const cli::Arguments&) -> int { lose_peer(gpu_says(214, "CUDA error: uncorrectable ECC error")); }),
      ErrorCode::io, "uncorrectable ECC error", "lost the peers");
  expect_end(ended([](const cli::Arguments&) -> int { lose_peer(std::bad_alloc()); }), ErrorCode::out_of_memory,
             "out of memory", "lost the peers");
}

TEST(RunCommand, an_error_that_holds_no_such_situation_ends_with_its_own_code_and_words) {
  expect_end(ended([](const cli::Arguments&) -> int { lose_peer(std::runtime_error("a detail")); }),
             ErrorCode::communication, "lost the peers", "a detail");
  expect_end(
      ended([](const cli::Arguments&) -> int { throw fail(ErrorCode::checkpoint, "cut short\n   bring it again"); }),
      ErrorCode::checkpoint, "cut short\n   bring it again", "lost");
}

TEST(RunCommand, a_situation_alone_has_its_code_and_what_is_neither_is_left_to_the_program) {
  expect_end(ended([](const cli::Arguments&) -> int { throw std::bad_alloc(); }), ErrorCode::out_of_memory,
             "out of memory", "internal");
  EXPECT_THROW(ended([](const cli::Arguments&) -> int { throw std::logic_error("a bug"); }), std::logic_error);
  EXPECT_THROW(ended([](const cli::Arguments&) -> int { throw gpu_says(900, "CUDA error: stream is capturing"); }),
               c10::AcceleratorError);
}

TEST(RunCommand, a_command_that_returns_ends_with_what_it_returns_and_one_that_is_not_there_is_our_own_bug) {
  const Ended fine = ended([](const cli::Arguments&) { return 75; });
  EXPECT_EQ(fine.code, 75);
  EXPECT_EQ(fine.told, "");
  expect_end(ended([](const cli::Arguments&) { return 0; }, "train"), ErrorCode::internal, "knows command doctor",
             "lost");
}

}  // namespace
}  // namespace drivetrain::test
