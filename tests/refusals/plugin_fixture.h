// What the tests of the door share: a scratch folder, copies of the built libraries, damaged copies, services.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <drivetrain/monitor.h>
#include <drivetrain/services.h>

#include <drivetrain/testkit/kit/temp_folder.h>
#include "plugin/registry.h"

namespace drivetrain {

class DoorTest : public testing::Test {
 protected:
  static std::string built(const std::string& name) {
    return std::string(DRIVETRAIN_REFUSALS_DIR) + "/" + name + "/monitor_" + name + ".so";
  }
  std::string folder(const std::string& name) {
    std::filesystem::create_directories(scratch_ / name);
    return (scratch_ / name).string();
  }
  static std::string read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  std::string write(const std::string& path, const std::string& bytes) {
    const std::filesystem::path file = scratch_ / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << bytes;
    return file.string();
  }
  std::string copy(const std::string& name, const std::string& to) { return write(to, read(built(name))); }
  // The right library with some bytes of its manifest (or anything else) replaced by as many others.
  std::string patched(const std::string& from, const std::string& to,
                      const std::string& path = "patched/monitor_good.so") {
    EXPECT_EQ(from.size(), to.size());
    std::string bytes = read(built("good"));
    const size_t at = bytes.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return write(path, bytes.replace(at, from.size(), to));
  }

  // Only the given places: what is installed stays out of the picture.
  static SearchPath only(const std::vector<std::string>& places) {
    SearchPath search;
    for (size_t i = 0; i < places.size(); ++i)
      search.places.push_back({places[i], concat("DRIVETRAIN_PLUGIN_PATH, entry ", i + 1)});
    return search;
  }
  static std::string refusal(const std::string& path) { return inspect_file(path, "test", only({}))->problem; }

  // The message of the Error that `call` throws; its code goes to `code`.
  template <class Call>
  std::string error_of(Call&& call) {
    try {
      call();
    } catch (const Error& e) {
      code = e.code();
      return e.what();
    }
    return "nothing was thrown";
  }
  ErrorCode code{};

  struct QuietLog : Log {
    std::string text;
    void write(LogLevel, const std::string& line) override { text += line + "\n"; }
    void progress(const std::string&) override {}
  } log;
  struct NoStore : Store {
    void set(const std::string&, const std::string&) override {}
    std::string get(const std::string&, double) override { return ""; }
    bool has(const std::string&) override { return false; }
    int64_t add(const std::string&, int64_t) override { return 0; }
  } store;
  Services services{log, store};
  test::TempFolder temporary_;
  const std::filesystem::path scratch_ = temporary_.path();
};

inline void expect_has(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << "wanted: " << part << "\nin:\n" << text;
}

}  // namespace drivetrain
