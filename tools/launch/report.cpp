#include "launch/report.h"

#include <algorithm>
#include <set>

#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "launch/write_text.h"

namespace drivetrain::program {
namespace {

constexpr size_t kMostNamed = 8;  // hosts

bool reads_alike(int code) { return code == 2 || code == 3; }  // configuration, plugins

std::vector<std::string> errors_of(const std::vector<RankLines>& ranks) {
  std::vector<std::string> list;
  for (const RankLines& rank : ranks) list.push_back(rank.error());
  return list;
}

}  // namespace

void launcher_says(Outlet& to, const std::string& text) { to.put("drivetrain launch: " + printable(text) + "\n"); }

void launcher_says(int to, const std::string& text) { write_text(to, "drivetrain launch: " + printable(text) + "\n"); }

// The first that had the error and has not only heard of it. Rank 0's words have been passed already: they are enough
// where they have all of it and nothing else. `errors`: of the ranks, which begin with `first`.
int speaker_of(const SameError& same, const std::vector<std::string>& errors, int first) {
  const auto error = [&](int rank) -> const std::string& { return errors[static_cast<size_t>(rank - first)]; };
  const auto own =
      std::find_if(same.ranks.begin(), same.ranks.end(), [&](int rank) { return heard_error(error(rank)).empty(); });
  const int lowest = same.ranks.front();
  if (own == same.ranks.end() || (lowest == 0 && says_as_much(error(0), error(*own)))) return lowest;
  return *own;
}

void pass_first_errors(std::vector<RankLines>& ranks) {
  const std::vector<std::string> errors = errors_of(ranks);
  for (const SameError& same : same_errors(errors))
    ranks[static_cast<size_t>(speaker_of(same, errors, 0))].err->pass_error();
}

Report::Report(std::vector<RankLines>& ranks, const std::vector<RankEnd>& ends, Say say)
    : ranks_(ranks), ends_(ends), say_(std::move(say)), said_(same_errors(errors_of(ranks))) {
  for (SameError& same : said_)
    for (int& rank : same.ranks) rank += ranks_.front().number;
}

// Where others start the ranks of other hosts, those here do not begin at 0.
RankLines& Report::lines_of(int rank) const { return ranks_[static_cast<size_t>(rank - ranks_.front().number)]; }

// Often all ranks have the same to say - of the configuration, of a peer that is gone: that once, under the first rank
// that does.
void Report::pass_errors() const {
  const std::vector<std::string> errors = errors_of(ranks_);
  for (const SameError& same : said_) {
    const int speaker = speaker_of(same, errors, ranks_.front().number);
    lines_of(speaker).err->pass_error();
    const auto alike = [this](int rank) { return reads_alike(code_of(rank)); };
    if (std::none_of(same.ranks.begin(), same.ranks.end(), alike) && same.ranks.size() > 1) say_(same.note(speaker));
  }
}

const SameError* Report::said_by(int rank) const {
  for (const SameError& same : said_)
    if (std::find(same.ranks.begin(), same.ranks.end(), rank) != same.ranks.end()) return &same;
  return nullptr;
}

// It met nobody (runtime/store/client_thread.cpp): rank 0 had found what is wrong and ended before this one came. One
// that had met it says that rank 0 "is gone".
bool Report::came_too_late(int rank) const {
  return lines_of(rank).error().find(": nothing listens any more on ") != std::string::npos;
}

// Rank 0 among them, and whoever came when it was gone left out.
bool Report::all_said_the_same(const SameError* same) const {
  if (!same) return false;
  const auto is_in = [&](int rank) {
    return std::find(same->ranks.begin(), same->ranks.end(), rank) != same->ranks.end();
  };
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [&](const RankLines& r) { return is_in(r.number) || (is_in(0) && came_too_late(r.number)); });
}

// Every rank plans by itself, so a file of the config that is on all hosts is found by all.
std::string Report::missing_there(const RankEnd& failure) const {
  const SameError* const same = said_by(failure.rank);
  if (!reads_alike(failure.code) || !same) return "";
  std::set<std::string> found_it, heard_of_it;
  for (const int rank : same->ranks)
    (heard_error(lines_of(rank).error()).empty() ? found_it : heard_of_it).insert(lines_of(rank).host);
  for (const RankLines& rank : ranks_)
    if (came_too_late(rank.number)) heard_of_it.insert(rank.host);
  for (const std::string& host : found_it) heard_of_it.erase(host);
  if (heard_of_it.empty() || found_it.size() > kMostNamed) return "";
  std::string names;
  for (const std::string& host : found_it) names += (names.empty() ? "" : ", ") + host;
  return ". Only host" + std::string(found_it.size() == 1 ? " " : "s ") + names +
         " said so: files and plugins that the config names have to be at the same path on every host";
}

void Report::name(const RankEnd& failure) const {
  const std::string ended = failure.code == kRequeue ? " ended" : " failed";  // a preempted one is no failure
  std::string text = lines_of(failure.rank).name() + ended + (ranks_.size() > 1 ? " first: " : ": ") +
                     describe_end(failure) + (failure.fault.empty() ? " after " : "; ended after ") +
                     formatted("%.1f s", failure.after_s);
  // A library that called exit, perhaps: its rank said nothing and the others lost it.
  for (const RankEnd& end : ends_)
    if (failure.code == 5 && end.code == 0 && end.after_s < failure.after_s)
      text += "; rank " + std::to_string(end.rank) + " had ended before that, with exit 0";
  const RankLines& rank = lines_of(failure.rank);
  const bool in_log = rank.err && rank.err->passes_errors_only();
  if ((ranks_.size() == 1 && !in_log) || !rank.err) {  // its lines stand above
  } else if (reads_alike(failure.code) && all_said_the_same(said_by(failure.rank))) {
    const bool all_had_it = std::all_of(ranks_.begin(), ranks_.end(), [&](const RankLines& r) {
      return heard_error(r.error()).empty() && !came_too_late(r.number);
    });
    text += all_had_it ? "; all ranks said the same" : "; what it said stands above" + missing_there(failure);
  } else if (stands_above(failure.rank)) {
    text += "; what it said stands above";
  } else if (!rank.err->last_lines().empty()) {
    text += "; its last lines:";
    for (const std::string& line : rank.err->last_lines()) text += "\n  " + line;
  }
  if (in_log) text += "\n  all of them: " + rank.log;
  say_(text);
}

int Report::code_of(int rank) const {
  for (const RankEnd& end : ends_)
    if (end.rank == rank) return end.code;
  return 0;
}

// With the note that others said the same.
bool Report::stands_above(int rank) const {
  return !reads_alike(code_of(rank)) && std::any_of(said_.begin(), said_.end(), [&](const SameError& same) {
    return same.ranks.size() > 1 && std::find(same.ranks.begin(), same.ranks.end(), rank) != same.ranks.end();
  });
}

}  // namespace drivetrain::program
