#include "state/foreign_tensors.h"

#include <algorithm>
#include <regex>

#include <drivetrain/error.h>

namespace drivetrain {

std::vector<int64_t> ForeignTensor::shape(std::vector<int64_t> ours) const {
  ours.at(0) = rows;
  if (transposed) std::rotate(ours.begin(), ours.begin() + 1, ours.end());
  return ours;
}

bool ForeignTensor::fits(const std::vector<int64_t>& found, const std::vector<int64_t>& ours) const {
  if (absent == AbsentRows::refused || found.size() != ours.size()) return fits_whole(found, ours);
  ForeignTensor shorter = *this;
  if (rows_of(found) >= least) shorter.rows = std::min(rows, rows_of(found));
  return shorter.fits_whole(found, ours);
}

bool ForeignTensor::fits_whole(const std::vector<int64_t>& found, const std::vector<int64_t>& ours) const {
  const std::vector<int64_t> wanted = shape(ours);
  if (!padded || found.size() != wanted.size()) return found == wanted;
  ForeignTensor longer = *this;
  longer.rows = std::max(rows, rows_of(found));
  return found == longer.shape(ours);
}

bool is_ignored(const WeightRules& rules, const std::string& name) {
  const bool prefixed = !rules.prefix.empty() && name.rfind(rules.prefix, 0) == 0;
  const std::string bare = prefixed ? name.substr(rules.prefix.size()) : name;
  return std::any_of(rules.ignored.begin(), rules.ignored.end(),
                     [&](const std::string& pattern) { return std::regex_match(bare, std::regex(pattern)); });
}

std::map<std::string, ForeignTensor> foreign_tensors(const WeightRules& rules) {
  std::map<std::string, ForeignTensor> tensors;
  for (const WeightRule& rule : rules.rules)
    for (const WeightPart& part : rule.parts) {
      const std::string name = written_name(rules, part);
      const auto [found, fresh] = tensors.try_emplace(name);
      ForeignTensor& tensor = found->second;
      if (fresh) tensor.transposed = rule.transposed, tensor.absent = part.absent;
      if (part.first < 0 || part.rows < 0 || tensor.transposed != rule.transposed)
        throw fail(ErrorCode::internal, "the weight rule of ", rule.param, " has rows of ", name, " from ", part.first,
                   " on, ", part.rows, " of them, or another rule transposes that tensor otherwise");
      if (tensor.absent != part.absent)
        throw fail(ErrorCode::internal, "the weight rule of ", rule.param, " says of ", name,
                   " what absent rows start from, and another part of that tensor says something else");
      // Only the part that ends last may lack rows, and not all of them.
      const int64_t end = part.first + part.rows;
      tensor.least = end > tensor.rows ? std::max(tensor.rows, part.first + 1) : std::max(tensor.least, end);
      tensor.rows = std::max(tensor.rows, end);
      tensor.padded = tensor.padded || part.padded;
    }
  return tensors;
}

}  // namespace drivetrain
