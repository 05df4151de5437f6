#include <drivetrain/testkit/kit/train.h>

#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include <drivetrain/testkit/kit/plugins.h>
#include <drivetrain/testkit/kit/temp_folder.h>

namespace drivetrain::test {

Output run_program(const std::vector<std::string>& words) {
  std::string command = installed_program();
  for (const std::string& word : words) {
    command += " '";
    for (const char c : word) command += c == '\'' ? std::string("'\\''") : std::string(1, c);
    command += "'";
  }
  FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (!pipe) throw fail(ErrorCode::internal, "cannot start ", command);
  Output output;
  char part[4096];
  for (size_t got; (got = std::fread(part, 1, sizeof part, pipe)) > 0;) output.text.append(part, got);
  const int status = ::pclose(pipe);
  output.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return output;
}

// Exit codes of the contract are the codes of errors; a signal has none.
static ErrorCode code_of(int exit_code) {
  const bool known = exit_code > 0 && exit_code <= static_cast<int>(ErrorCode::io);
  return known ? static_cast<ErrorCode>(exit_code) : ErrorCode::internal;
}

std::string reason_of(const Error& refusal) {
  std::string text = refusal.what();
  if (const size_t error = text.rfind("error: "); error != std::string::npos) text = text.substr(error + 7);
  text = text.substr(0, text.find('\n'));
  const size_t place = text.find(".json:"), reason = text.find("  ", place);
  return place == std::string::npos || reason == std::string::npos ? text : text.substr(reason + 2);
}

std::vector<Value> read_metrics_file(const std::string& folder) {
  std::vector<Value> metrics;
  std::ifstream file(folder + "/metrics.jsonl");
  for (std::string line; std::getline(file, line);) metrics.push_back(parse_json(line, folder + "/metrics.jsonl"));
  return metrics;
}

TrainedRun train_by_program(const Value& config, int ranks) {
  const TempFolder folder;
  Value whole = config;
  whole.set("threads", 1);
  std::ofstream(folder / "run.json") << whole.to_json(2);
  std::vector<std::string> words = {"launch", "-n", std::to_string(ranks), folder / "run.json"};
  for (const std::string& opened : installed_plugins().outside_folders())
    words.insert(words.end(), {"--plugin-path", opened});
  const Output output = run_program(words);
  if (output.code != 0)
    throw fail(code_of(output.code), "a run ended with exit code ", output.code, ":\n", output.text);
  const std::string run = config.find("output_dir")->as_string();
  return {run, read_metrics_file(run)};
}

}  // namespace drivetrain::test
