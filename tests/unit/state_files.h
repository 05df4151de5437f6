// Shared by the tests of runtime/state: temporary folders, hand-made safetensors files, error texts.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include <drivetrain/error.h>

#include <drivetrain/testkit/kit/temp_folder.h>

namespace drivetrain::test {

inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path << " cannot be read";
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

inline std::string little_endian(uint64_t n) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &n, 8);
  return bytes;
}

// A file with this header and `data` zero bytes.
inline std::string safetensors_bytes(const std::string& json, size_t data = 0) {
  return little_endian(json.size()) + json + std::string(data, '\0');
}

struct Caught {
  ErrorCode code = ErrorCode::internal;
  std::string text;  // empty: nothing was thrown
};

inline Caught error_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {};
}

// A golden file; a test that needs it fails with the reason if it is not there.
inline std::string golden(const std::string& name) {
  const std::string path = std::string(DRIVETRAIN_GOLDEN_DIR) + "/" + name;
  EXPECT_TRUE(std::filesystem::exists(path)) << "golden data is not there: " << path;
  return path;
}

}  // namespace drivetrain::test

#define EXPECT_HAS(text, part) \
  EXPECT_NE((text).find(part), std::string::npos) << "in: " << (text) << "\nwanted: " << (part)
