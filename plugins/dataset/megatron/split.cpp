#include "split.h"

#include <drivetrain/error.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <vector>

#include "blend.h"

namespace drivetrain::megatron {
namespace {

Error wrong_split(const std::string& text, const std::string& found) {
  return fail(ErrorCode::config, "dataset/megatron: split is \"", text, "\": ", found,
              "\n   it is three numbers for training, validation and test, such as \"969,30,1\"");
}

std::vector<double> numbers_of(const std::string& text) {
  std::vector<double> numbers;
  std::istringstream list(text);
  for (std::string part; std::getline(list, part, ',');) {
    std::istringstream stream(part);
    double number = 0;
    if (!(stream >> number) || !(stream >> std::ws).eof()) throw wrong_split(text, "\"" + part + "\" is not a number");
    if (!(number >= 0) || std::isinf(number)) throw wrong_split(text, "\"" + part + "\" is less than 0 or not finite");
    numbers.push_back(number);
  }
  return numbers;
}

}  // namespace

Split::Split(const std::string& text) {
  std::vector<double> parts = numbers_of(text);
  if (parts.size() > bounds_.size()) throw wrong_split(text, concat("it has ", parts.size(), " numbers"));
  parts.resize(bounds_.size());
  double sum = 0;
  for (const double part : parts) sum += part;
  if (!(sum > 0) || std::isinf(sum)) throw wrong_split(text, "its numbers have no sum above 0");
  parts = normalized(parts);
  double begin = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const double end = begin + parts[i];
    if (end > begin) bounds_[i] = {begin, end};
    begin = end;
  }
}

Range Split::sequences(int64_t part, int64_t count) const {
  const auto& bound = bounds_[static_cast<size_t>(part)];
  if (!bound) return {};
  // Half goes to the even number, as Python rounds.
  const auto place = [&](double at) { return static_cast<int64_t>(std::nearbyint(at * static_cast<double>(count))); };
  return {place(bound->first), std::min(place(bound->second), count)};
}

}  // namespace drivetrain::megatron
