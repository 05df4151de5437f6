#include "launch/rank_errors.h"

#include <algorithm>
#include <map>
#include <string_view>

namespace drivetrain::program {
namespace {

constexpr std::string_view kPrefix = "drivetrain: error: ";

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string without_prefix(const std::string& error) {
  return error.starts_with(kPrefix) ? error.substr(kPrefix.size()) : error;
}

struct Heard {
  size_t at = 0;  // where "rank 2 stopped: " begins
  std::string text;
};

// The first "rank N stopped: TEXT" of a line, at its begin or behind ": ".
Heard heard_in(const std::string& line) {
  constexpr std::string_view kRank = "rank ", kStopped = " stopped: ";
  for (size_t at = line.find(kRank); at != std::string::npos; at = line.find(kRank, at + 1)) {
    if (at > 0 && (at < 2 || line.compare(at - 2, 2, ": ") != 0)) continue;
    const size_t digits = at + kRank.size(), end = line.find_first_not_of("0123456789", digits);
    if (end == std::string::npos || end == digits || line.compare(end, kStopped.size(), kStopped) != 0) continue;
    return {at, line.substr(end + kStopped.size())};
  }
  return {};
}

}  // namespace

std::string cause_of(const std::string& error) {
  const std::string line = first_line(error);
  const size_t at = line.rfind(": rank ");
  return at == std::string::npos ? error : line.substr(at + 2);
}

// By hand: an error may be a line of 64 KB, for which std::regex has not stack enough.
std::string heard_error(const std::string& error) { return heard_in(first_line(error)).text; }

bool says_as_much(const std::string& heard, const std::string& own) {
  const Heard found = heard_in(first_line(without_prefix(heard)));
  const size_t end = own.find('\n');
  const bool one_line = end == std::string::npos || end + 1 == own.size();
  return found.text.empty() || (one_line && found.at == 0);
}

std::string SameError::note(int speaker) const {
  const size_t others = ranks.size() - 1;
  if (others == 0) return "";
  return std::to_string(others) + (others == 1 ? " other rank" : " other ranks") + " said the same as rank " +
         std::to_string(speaker);
}

std::vector<SameError> same_errors(const std::vector<std::string>& errors) {
  std::vector<SameError> all;
  std::map<std::string, size_t> known, by_first_line;  // a rank hears the first line
  const auto add = [&](size_t rank, const std::string& cause) {
    const auto [place, fresh] = known.emplace(cause, all.size());
    if (fresh) all.emplace_back();
    all[place->second].ranks.push_back(static_cast<int>(rank));
    by_first_line.emplace(first_line(cause), place->second);
  };
  for (size_t i = 0; i < errors.size(); ++i)
    if (!errors[i].empty() && heard_error(errors[i]).empty()) add(i, cause_of(without_prefix(errors[i])));
  for (size_t i = 0; i < errors.size(); ++i) {
    const std::string heard = heard_error(errors[i]);
    if (heard.empty()) continue;
    const auto own = by_first_line.find(cause_of(heard));
    if (own == by_first_line.end())
      add(i, cause_of(heard));
    else
      all[own->second].ranks.push_back(static_cast<int>(i));
  }
  for (SameError& same : all) std::sort(same.ranks.begin(), same.ranks.end());
  std::sort(all.begin(), all.end(), [](const SameError& a, const SameError& b) { return a.ranks < b.ranks; });
  return all;
}

}  // namespace drivetrain::program
