// Shared by the config tests: the message of a throwing call, and files in a folder of the test's own.
#pragma once

#include <gtest/gtest.h>

#include <unistd.h>
#include <filesystem>
#include <fstream>
#include <string>

#include <drivetrain/options.h>

namespace drivetrain {

template <class Call>
std::string config_error_of(const Call& call, ErrorCode code = ErrorCode::config) {
  try {
    call();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code);
    return e.what();
  }
  return "no error";
}

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

#define EXPECT_HAS(text, part) EXPECT_PRED2(has, text, part)

class ConfigFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() / concat("drivetrain_config_", ::getpid(), "_", test->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }

  std::filesystem::path folder_;
};

}  // namespace drivetrain
