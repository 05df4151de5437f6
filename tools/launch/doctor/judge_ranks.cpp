#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>

#include <drivetrain/toolkit/text.h>

#include "launch/doctor/fields.h"
#include "launch/doctor/judge.h"
#include "launch/outcome.h"
#include "launch/watched_command.h"
#include "launch/write_text.h"

namespace drivetrain::program {
namespace {

constexpr double kBenchMayTakeS = 240, kEndMayTakeS = 15;

bool all_have_gpus(const SurveyReport& survey) {
  return std::all_of(survey.hosts.begin(), survey.hosts.end(), [](const HostReport& host) {
    const Value* const facts = host.doctor.find("facts");
    const Value* const gpus = facts ? facts->find("gpus") : nullptr;
    return gpus && gpus->is_array() && !gpus->items().empty();
  });
}

// A launch that does not end by itself is told to, and ends its ranks on all hosts.
bool ends_in_time(WatchedCommand& command) {
  const auto within = [&](double seconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (!command.has_ended() && std::chrono::steady_clock::now() < end) poll(nullptr, 0, 50);
    return command.has_ended();
  };
  if (within(kBenchMayTakeS)) return true;
  command.signal(SIGTERM);
  within(kEndMayTakeS);
  return false;
}

// The begin, and the end, which has the cause.
std::string some_of(const std::string& errors) {
  constexpr size_t kMost = 2000;
  return errors.size() <= 2 * kMost ? errors
                                    : errors.substr(0, kMost) + "\n...\n" + errors.substr(errors.size() - kMost);
}

// "all_reduce: 4096 bytes in 85 us, 4 MB at 2.68 GB/s", of the kind of memory that was timed first.
std::string figures(const Value& results) {
  std::string text;
  const auto is_same = [](const Value& one, const Value& other, const char* key) {
    return text_field(one, key) == text_field(other, key);
  };
  for (size_t i = 0; i < results.items().size(); ++i) {
    const Value& small = results.items()[i];
    if (i > 0 && is_same(small, results.items()[i - 1], "op")) continue;
    const Value* large = &small;
    for (const Value& other : results.items())
      if (is_same(other, small, "op") && is_same(other, small, "buffers")) large = &other;
    const Value* const seconds = small.find("seconds");
    text += concat("\n", text_field(small, "op"), ": ", number_field(small, "bytes"), " bytes in ",
                   formatted("%.0f us, ", 1e6 * (seconds ? number_field(*seconds, "median") : 0)),
                   formatted("%.0f MB at %.2f GB/s", number_field(*large, "bytes") / 1e6,
                             number_field(*large, "bus_bytes_per_s") / 1e9));
  }
  return text;
}

}  // namespace

Value judge_ranks(Findings& findings, const SurveyReport& survey, const RanksRequest& request) {
  findings.begin("ranks");
  if (findings.count(Finding::problem) > 0) {
    findings.ok("collectives", "not tried: it takes hosts without problems");
    return {};
  }
  std::string hostfile;
  for (const HostReport& host : survey.hosts) hostfile += concat(host.name, " slots=", request.per_host, "\n");
  const Descriptor file(memfd_create("hostfile", MFD_CLOEXEC));
  write_text(file.get(), hostfile);
  std::vector<std::string> words{request.program,
                                 "launch",
                                 "--hostfile",
                                 concat("/proc/", getpid(), "/fd/", file.get()),
                                 "--force_multi",
                                 "--bench",
                                 "collectives",
                                 "--sizes",
                                 "4096,4M",
                                 "--rounds",
                                 "3",
                                 "--json",
                                 "--device",
                                 all_have_gpus(survey) ? "cuda" : "cpu"};
  words.insert(words.end(), request.options.begin(), request.options.end());
  WatchedCommand command(words);
  const bool in_time = ends_in_time(command);
  const size_t ranks = survey.hosts.size() * static_cast<size_t>(request.per_host);
  if (!in_time || command.code() != 0) {
    const std::string how = in_time ? describe_end({.code = command.code()})
                                    : "it took longer than " + seconds_text(kBenchMayTakeS) + " and was ended";
    findings.problem(
        "collectives", concat(ranks, " ranks: ", how, "\n", some_of(command.err())),
        "the first error above is the cause; `drivetrain launch --hostfile FILE --bench collectives` repeats "
        "this",
        in_time && command.code() == 3   ? ErrorCode::plugin
        : in_time && command.code() == 2 ? ErrorCode::config
                                         : ErrorCode::communication);
    return {};
  }
  Value report;
  findings.attempt("collectives", [&] {
    report = parse_json(command.out(), "bench collectives");
    const Value* const results = report.find("results");
    if (!results || !results->is_array() || results->items().empty())
      throw fail(ErrorCode::internal, "bench collectives printed no results");
    findings.ok("collectives",
                concat(ranks, " ranks on ", survey.hosts.size(), " hosts agree about every value; communicator/",
                       text_field(results->items().front(), "communicator"), figures(*results)));
  });
  return report;
}

}  // namespace drivetrain::program
