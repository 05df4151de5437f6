#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <drivetrain/toolkit/text.h>

#include "doctor/checks.h"

extern char** environ;

namespace drivetrain {
namespace {

struct Ended {
  int code = 0;
  std::string output, errors;
};

std::string all_of(int descriptor) {
  std::string text;
  char piece[4096];
  for (;;) {
    const ssize_t n = ::read(descriptor, piece, sizeof piece);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return text;
    text.append(piece, static_cast<size_t>(n));
  }
}

// The program's two streams go to files without a name, so that neither waits for a reader.
Ended run_program(std::vector<std::string> words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int out = memfd_create("out", MFD_CLOEXEC), err = memfd_create("err", MFD_CLOEXEC);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err, STDERR_FILENO);
  pid_t child = 0;
  const int failed = posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  Ended ended;
  int status = 0;
  if (failed == 0)
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
  ended.code = failed != 0 ? 127 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  lseek(out, 0, SEEK_SET), lseek(err, 0, SEEK_SET);
  ended.output = all_of(out), ended.errors = failed != 0 ? std::strerror(failed) : all_of(err);
  ::close(out), ::close(err);
  return ended;
}

std::string text_of(const Value& result, const char* key) {
  const Value* const value = result.find(key);
  return value && value->is_string() ? value->as_string() : "";
}

// Which collectives were compared, over which communicator.
std::string compared(const std::string& json) {
  const Value report = parse_json(json, "bench collectives");
  const Value* const results = report.find("results");
  std::vector<std::string> collectives;
  std::string communicator;
  for (const Value& result : results ? results->items() : Value::Array()) {
    const std::string collective = text_of(result, "op");
    if (collectives.empty() || collectives.back() != collective) collectives.push_back(collective);
    communicator = text_of(result, "communicator");
  }
  return concat("communicator/", communicator, ": ", join(collectives));
}

}  // namespace

// The benchmark compares every value before it times anything.
void look_at_ranks(Findings& findings, int64_t ranks, const std::string& device, const std::string& communicator,
                   const std::vector<std::string>& plugin_paths) {
  findings.begin("ranks");
  std::vector<std::string> words{std::filesystem::read_symlink("/proc/self/exe"),
                                 "launch",
                                 "-n",
                                 concat(ranks),
                                 "--bench",
                                 "collectives",
                                 "--sizes",
                                 "4096,1M",
                                 "--rounds",
                                 "1",
                                 "--json",
                                 "--device",
                                 device};
  if (!communicator.empty()) words.insert(words.end(), {"--communicator", communicator});
  for (const std::string& path : plugin_paths) words.insert(words.end(), {"--plugin-path", path});
  const Ended ended = run_program(words);
  if (ended.code != 0)
    return findings.problem(
        "collectives", concat(ranks, " ranks on ", device, ": exit code ", ended.code, "\n", ended.errors),
        "the first error above is the cause; `drivetrain launch -n N --bench collectives` repeats this",
        ended.code == 3 ? ErrorCode::plugin : ErrorCode::config);
  findings.attempt("collectives", [&] {
    findings.ok("collectives",
                concat(ranks, " ranks on ", device, " agree about every value; ", compared(ended.output)));
  });
}

}  // namespace drivetrain
