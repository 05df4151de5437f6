#include "launch/rank_errors.h"

#include <algorithm>
#include <map>
#include <regex>
#include <string_view>

namespace drivetrain::program {
namespace {

constexpr std::string_view kPrefix = "drivetrain: error: ";

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string without_prefix(const std::string& error) {
  return error.starts_with(kPrefix) ? error.substr(kPrefix.size()) : error;
}

}  // namespace

std::string cause_of(const std::string& error) {
  const std::string line = first_line(error);
  const size_t at = line.rfind(": rank ");
  return at == std::string::npos ? error : line.substr(at + 2);
}

std::string heard_error(const std::string& error) {
  static const std::regex form("(?:^|: )rank [0-9]+ stopped: (.*)");
  std::smatch found;
  const std::string line = first_line(error);
  return std::regex_search(line, found, form) ? found[1].str() : "";
}

std::string SameError::note() const {
  const size_t others = ranks.size() - 1;
  if (others == 0) return "";
  return std::to_string(others) + (others == 1 ? " other rank" : " other ranks") + " said the same as rank " +
         std::to_string(ranks.front());
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
