#include "matrix/pairs.h"

#include <algorithm>

namespace drivetrain::test {
namespace {

// A number for every pair of values of two factors.
class Pairs {
 public:
  explicit Pairs(const std::vector<Choice>& choices) {
    for (const Choice& choice : choices) {
      factors_ = choice.size();
      for (const int value : choice) values_ = std::max(values_, static_cast<size_t>(value) + 1);
    }
  }
  size_t factors() const { return factors_; }
  size_t values() const { return values_; }  // the most that a factor has

  template <class Visit>
  void for_each(const Choice& choice, const Visit& visit) const {
    for (size_t f = 0; f < factors_; ++f)
      for (size_t g = f + 1; g < factors_; ++g)
        visit(((f * factors_ + g) * values_ + static_cast<size_t>(choice[f])) * values_ +
              static_cast<size_t>(choice[g]));
  }
  std::vector<bool> in(const std::vector<Choice>& choices) const {
    std::vector<bool> present(factors_ * factors_ * values_ * values_, false);
    for (const Choice& choice : choices) for_each(choice, [&](size_t pair) { present[pair] = true; });
    return present;
  }

 private:
  size_t factors_ = 0, values_ = 0;
};

}  // namespace

size_t count_pairs(const std::vector<Choice>& choices) {
  const std::vector<bool> present = Pairs(choices).in(choices);
  return static_cast<size_t>(std::count(present.begin(), present.end(), true));
}

std::vector<size_t> cover_pairs(const std::vector<Choice>& legal) {
  const Pairs pairs(legal);
  std::vector<bool> missing = pairs.in(legal);
  std::vector<std::vector<int>> uses(pairs.factors(), std::vector<int>(pairs.values()));
  const auto gain_of = [&](const Choice& choice) {
    int gain = 0;
    pairs.for_each(choice, [&](size_t pair) { gain += missing[pair]; });
    return gain;
  };
  const auto uses_of = [&](const Choice& choice) {
    int sum = 0;
    for (size_t f = 0; f < choice.size(); ++f) sum += uses[f][static_cast<size_t>(choice[f])];
    return sum;
  };
  std::vector<size_t> chosen;
  while (true) {
    int best_gain = 0;
    size_t best = legal.size();
    for (size_t i = 0; i < legal.size(); ++i) {
      const int gain = gain_of(legal[i]);
      if (gain > best_gain || (gain > 0 && gain == best_gain && uses_of(legal[i]) < uses_of(legal[best])))
        best = i, best_gain = gain;
    }
    if (best_gain == 0) return chosen;
    const Choice& choice = legal[best];
    pairs.for_each(choice, [&](size_t pair) { missing[pair] = false; });
    for (size_t f = 0; f < choice.size(); ++f) ++uses[f][static_cast<size_t>(choice[f])];
    chosen.push_back(best);
  }
}

}  // namespace drivetrain::test
