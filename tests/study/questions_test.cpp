// Questions to the program: what it says comes back, and where nothing answers, that is an error of the study and no
// refusal of a cell.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include <drivetrain/error.h>

#include "study/questions.h"

namespace {

enum class Forks { work, fail, are_never_seen_again };
Forks forks = Forks::work;  // of the processes that the test's process starts
const pid_t test_process = getpid();

}  // namespace

extern "C" pid_t fork() noexcept {  // goes before the C library's
  const bool by_helper = getpid() != test_process;
  if (by_helper && forks == Forks::fail) {
    errno = EAGAIN;
    return -1;
  }
  if (by_helper && forks == Forks::are_never_seen_again) return 1;
  return reinterpret_cast<pid_t (*)()>(dlsym(RTLD_NEXT, "fork"))();
}

namespace drivetrain::study {
namespace {

// Without LibTorch, so that there is an answer at once.
class QuestionsTest : public testing::Test {
 protected:
  QuestionsTest() { setenv("DRIVETRAIN_TORCH", "/nowhere", 1); }
  ~QuestionsTest() override {
    unsetenv("DRIVETRAIN_TORCH");
    forks = Forks::work;
  }
  static ProcessStart question() {
    ProcessStart start;
    start.command = {"drivetrain", "train", "config.json", "--plan", "--json"}, start.timeout_s = 20;
    return start;
  }
  static void expect_no_answer(const char* reason) {
    const Questions questions;
    std::string refusal;
    try {
      questions.answer(question(), refusal);
      ADD_FAILURE() << "refused: " << refusal;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::io);
      EXPECT_NE(std::string(e.what()).find(reason), std::string::npos) << e.what();
    }
    EXPECT_EQ(refusal, "");
  }
};

TEST_F(QuestionsTest, what_the_program_says_comes_back) {
  const Questions questions;
  std::string refusal;
  EXPECT_FALSE(questions.answer(question(), refusal));
  EXPECT_EQ(refusal.find("no LibTorch at DRIVETRAIN_TORCH=/nowhere"), 0u) << refusal;
  EXPECT_EQ(questions.ask(question()).code, 2);
}

TEST_F(QuestionsTest, a_process_that_cannot_be_made_is_no_refusal) {
  forks = Forks::fail;
  expect_no_answer("no further process can be made: Resource temporarily unavailable");
}

TEST_F(QuestionsTest, a_process_that_ends_without_an_exit_code_is_no_refusal) {
  forks = Forks::are_never_seen_again;
  expect_no_answer("a process ended without an answer");
}

TEST_F(QuestionsTest, each_is_asked_once) {
  std::vector<int> asked(20);
  ask_side_by_side(3, asked.size(), [&](size_t i) { ++asked[i]; });
  for (size_t i = 0; i < asked.size(); ++i) EXPECT_EQ(asked[i], i < 3 ? 0 : 1) << i;
}

}  // namespace
}  // namespace drivetrain::study
