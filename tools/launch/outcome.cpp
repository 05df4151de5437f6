#include "launch/outcome.h"

#include <csignal>
#include <cstring>
#include <utility>

#include <drivetrain/toolkit/text.h>

namespace drivetrain::program {
namespace {

constexpr int kPeerLost = 5;

const char* meaning(int code) {
  constexpr std::pair<int, const char*> kMeanings[] = {{1, "an internal error"},
                                                       {2, "usage or configuration"},
                                                       {3, "a plugin is missing, refused or failed"},
                                                       {4, "out of memory"},
                                                       {kPeerLost, "a peer was lost or timed out"},
                                                       {6, "checkpoint refused"},
                                                       {7, "numeric failure"},
                                                       {8, "input or output"},
                                                       {kRequeue, "preempted"},
                                                       {127, "could not be run: a program or a library is missing"}};
  for (const auto& [number, words] : kMeanings)
    if (number == code) return words;
  return nullptr;
}

// What most often sends it, where no rank can say it any more.
std::string usual_cause(int signal) {
  switch (signal) {
    case SIGKILL:
      return ", often the kernel's answer to full memory";
    case SIGBUS:
      return ", often a full /dev/shm (`df /dev/shm`), or a mapped file that became shorter";
    case SIGILL:
      return ", often a program built for another processor";
    case SIGXCPU:
    case SIGXFSZ:
      return ", a limit of `ulimit -a`";
    default:
      return "";
  }
}

bool any_has(const std::vector<RankEnd>& ends, int code) {
  for (const RankEnd& end : ends)
    if (end.code == code) return true;
  return false;
}

// Causes before consequences: a rank that failed, one that did not go on, one that lost a peer.
int rank_of_cause(const RankEnd& end) { return end.code != kPeerLost ? 0 : end.fault.empty() ? 2 : 1; }

}  // namespace

bool is_as_asked(int code, int signal) { return code == 128 + signal || code == kRequeue; }

std::optional<RankEnd> first_failure(const std::vector<RankEnd>& ends, int signal) {
  const bool stopped = signal != 0 && (any_has(ends, 128 + signal) || any_has(ends, kRequeue));
  std::optional<RankEnd> first;
  for (const RankEnd& end : ends) {
    const bool faulty = !end.fault.empty();
    if (end.code == 0 || (end.by_launcher && !faulty)) continue;
    if (stopped && !faulty && (is_as_asked(end.code, signal) || end.code == kPeerLost)) continue;
    const int order = rank_of_cause(end), first_order = first ? rank_of_cause(*first) : 3;
    if (order < first_order || (order == first_order && end.after_s < first->after_s)) first = end;
  }
  return first;
}

int launch_code(const std::vector<RankEnd>& ends, int signal) {
  if (const auto failure = first_failure(ends, signal)) return failure->code;
  bool all_done = true;
  for (const RankEnd& end : ends) all_done = all_done && end.code == 0;
  return all_done ? 0 : any_has(ends, kRequeue) ? kRequeue : 128 + signal;
}

std::string describe_end(const RankEnd& end) {
  if (!end.fault.empty() && end.code == kPeerLost) return end.fault;
  if (!end.fault.empty()) return end.fault + ", then " + describe_end({end.rank, end.code});
  const int signal = end.code - 128;
  if (end.killed) {
    return "killed by signal " + std::to_string(signal) + " (" + strsignal(signal) + usual_cause(signal) + ")";
  }
  const std::string code = "exit " + std::to_string(end.code);
  if (const char* words = meaning(end.code)) return code + " (" + words + ")";
  return signal > 0 && signal < NSIG ? code + " (stopped by signal " + std::to_string(signal) + ")" : code;
}

std::string seconds_text(double seconds) { return formatted("%g s", seconds); }

std::string describe_stop(int signal) {
  return "stopped by signal " + std::to_string(signal) + " (" + strsignal(signal) + ")";
}

}  // namespace drivetrain::program
