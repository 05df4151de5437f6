// `drivetrain losses FOLDER...`: the loss at the end of each run.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include <drivetrain/error.h>
#include <drivetrain/value.h>

extern "C" __attribute__((visibility("default"))) const char* drivetrain_release() { return DRIVETRAIN_RELEASE; }

extern "C" __attribute__((visibility("default"))) int drivetrain_command(int count, const char* const* words) {
  for (int i = 0; i < count; ++i) {
    const std::filesystem::path folder = words[i];
    std::ifstream lines(folder / "metrics.jsonl");
    if (!lines) throw drivetrain::fail(drivetrain::ErrorCode::io, folder.string(), " has no metrics.jsonl");
    long long steps = 0;
    double loss = 0;
    for (std::string line; std::getline(lines, line);) {
      const drivetrain::Value value = drivetrain::parse_json(line, (folder / "metrics.jsonl").string());
      if (const drivetrain::Value* const found = value.find("loss")) loss = found->as_double(), ++steps;
    }
    std::printf("%s  %lld steps  loss %.4f at the end\n", folder.filename().c_str(), steps, loss);
  }
  return 0;
}
