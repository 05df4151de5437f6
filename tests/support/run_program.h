// Runs the built program as a user would and reads what it wrote.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <sys/wait.h>

#include <drivetrain/value.h>

#include <drivetrain/testkit/kit/temp_folder.h>

namespace drivetrain::test {

struct Ran {
  int code = -1;
  std::string output;  // stdout and stderr
};

inline Ran run_shell(const std::string& command) {
  Ran ran;
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  std::array<char, 4096> buffer;
  while (const size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe)) ran.output.append(buffer.data(), n);
  const int status = pclose(pipe);
  ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ran;
}

inline std::string program() { return DRIVETRAIN_BUILD_DIR "/bin/drivetrain"; }

// The objects of metrics.jsonl.
inline std::vector<Value> read_metrics(const std::string& run_folder) {
  std::vector<Value> lines;
  std::ifstream file(run_folder + "/metrics.jsonl");
  for (std::string line; std::getline(file, line);) lines.push_back(parse_json(line, "metrics.jsonl"));
  return lines;
}

inline std::string file_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace drivetrain::test
