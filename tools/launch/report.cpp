#include "launch/report.h"

#include <algorithm>

#include <drivetrain/toolkit/text.h>

#include "config/printable.h"

namespace drivetrain::program {
namespace {

bool reads_alike(int code) { return code == 2 || code == 3; }  // configuration, plugins

std::vector<std::string> errors_of(const std::vector<RankState>& ranks) {
  std::vector<std::string> list;
  for (const RankState& rank : ranks) list.push_back(rank.error());
  return list;
}

}  // namespace

void launcher_says(Outlet& to, const std::string& text) { to.put("drivetrain launch: " + printable(text) + "\n"); }

void launcher_says(int to, const std::string& text) { write_text(to, "drivetrain launch: " + printable(text) + "\n"); }

void pass_first_errors(const std::vector<RankState>& ranks) {
  for (const SameError& same : same_errors(errors_of(ranks)))
    ranks[static_cast<size_t>(same.ranks.front())].pass_error();
}

Report::Report(const std::vector<RankState>& ranks, const std::vector<RankEnd>& ends, Say say)
    : ranks_(ranks), ends_(ends), say_(std::move(say)), said_(same_errors(errors_of(ranks))) {
  for (SameError& same : said_)
    for (int& rank : same.ranks) rank += ranks_.front().number;
}

// Where others start the ranks of other hosts, those here do not begin at 0.
const RankState& Report::state_of(int rank) const { return ranks_[static_cast<size_t>(rank - ranks_.front().number)]; }

// Often all ranks have the same to say - of the configuration, of a peer that is gone: that once, under the first rank
// that does. Rank 0's words have been passed already.
void Report::pass_errors() const {
  for (const SameError& same : said_) {
    state_of(same.ranks.front()).pass_error();
    if (!reads_alike(code_of(same.ranks.front())) && same.ranks.size() > 1) say_(same.note());
  }
}

void Report::name(const RankEnd& failure) const {
  std::string text = state_of(failure.rank).name() + (ranks_.size() > 1 ? " failed first: " : " failed: ") +
                     describe_end(failure) + (failure.fault.empty() ? " after " : "; ended after ") +
                     formatted("%.1f s", failure.after_s);
  // A library that called exit, perhaps: its rank said nothing and the others lost it.
  for (const RankEnd& end : ends_)
    if (failure.code == 5 && end.code == 0 && end.after_s < failure.after_s)
      text += "; rank " + std::to_string(end.rank) + " had ended before that, with exit 0";
  const RankState& rank = state_of(failure.rank);
  const bool in_log = rank.err && rank.err->passes_errors_only();
  if ((ranks_.size() == 1 && !in_log) || !rank.err) {  // its lines stand above
  } else if (reads_alike(failure.code) && all_said_the_same()) {
    text += "; all ranks said the same";
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
