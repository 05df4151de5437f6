#include "launch/rank_errors.h"

#include <map>

namespace drivetrain::program {

std::string cause_of(const std::string& error) {
  const std::string line = error.substr(0, error.find('\n'));
  const size_t at = line.rfind(": rank ");
  return at == std::string::npos ? error : line.substr(at + 2);
}

std::string SameError::note() const {
  const size_t others = ranks.size() - 1;
  if (others == 0) return "";
  return std::to_string(others) + (others == 1 ? " other rank" : " other ranks") + " said the same as rank " +
         std::to_string(ranks.front());
}

std::vector<SameError> same_errors(const std::vector<std::string>& errors) {
  std::vector<SameError> all;
  std::map<std::string, size_t> known;
  for (size_t i = 0; i < errors.size(); ++i) {
    if (errors[i].empty()) continue;
    const auto [place, fresh] = known.emplace(cause_of(errors[i]), all.size());
    if (fresh) all.emplace_back();
    all[place->second].ranks.push_back(static_cast<int>(i));
  }
  return all;
}

}  // namespace drivetrain::program
