#include "study/statistics.h"

#include <algorithm>
#include <boost/math/distributions/chi_squared.hpp>
#include <boost/math/distributions/non_central_t.hpp>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <numeric>

namespace drivetrain::study {
namespace {

namespace math = boost::math;

constexpr size_t kExact = 25;  // values per group

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double variance_of(const std::vector<double>& values) {
  const double mean = mean_of(values);
  double sum = 0;
  for (const double x : values) sum += (x - mean) * (x - mean);
  return sum / static_cast<double>(values.size() - 1);
}

double two_sided_t(double t, double degrees) {
  return std::min(1.0, 2 * math::cdf(math::complement(math::students_t(degrees), std::abs(t))));
}

constexpr double kPower = 0.8, kSure = 0.8;
constexpr double kManyDegrees = 1000;  // from here on Student's t is a normal one

// How many of n pairs a trimmed mean sets aside at each end.
size_t set_aside(size_t n, double trim) { return static_cast<size_t>(trim * static_cast<double>(n)); }

// Degrees of freedom of the test: of the pairs that are kept.
double degrees_of(int64_t n, double trim) {
  const auto pairs = static_cast<size_t>(n);
  return static_cast<double>(pairs - 2 * set_aside(pairs, trim)) - 1;
}

// Of a two-sided paired test of n pairs, where the true mean is `effect` deviations.
double power_of(double effect, int64_t n, double level, double trim) {
  const double shift = effect * std::sqrt(static_cast<double>(n));
  if (shift > 30) return 1;
  const double degrees = degrees_of(n, trim);
  if (degrees > kManyDegrees)
    return math::cdf(
        math::complement(math::normal(shift), math::quantile(math::complement(math::normal(), level / 2))));
  const double limit = math::quantile(math::complement(math::students_t(degrees), level / 2));
  return shift <= 0 ? level : math::cdf(math::complement(math::non_central_t(degrees, shift), limit));
}

// In how many ways U comes out, for groups of n and m: ways[u].
std::vector<double> mann_whitney_ways(size_t n, size_t m) {
  // ways[j] of i values against j: the largest of all is of the first group (and beats j) or of the second.
  std::vector<std::vector<double>> ways(m + 1, std::vector<double>(n * m + 1, 0));
  for (auto& of : ways) of[0] = 1;
  for (size_t i = 1; i <= n; ++i) {
    std::vector<std::vector<double>> next(m + 1, std::vector<double>(n * m + 1, 0));
    for (size_t j = 0; j <= m; ++j)
      for (size_t u = 0; u <= i * j; ++u) next[j][u] = (u >= j ? ways[j][u - j] : 0) + (j > 0 ? next[j - 1][u] : 0);
    ways = std::move(next);
  }
  return ways[m];
}

double exact_mann_whitney(double u, size_t n, size_t m) {
  const std::vector<double> ways = mann_whitney_ways(n, m);
  const double all = std::accumulate(ways.begin(), ways.end(), 0.0);
  const auto low = static_cast<size_t>(std::min(u, static_cast<double>(n * m) - u));
  double tail = 0;
  for (size_t i = 0; i <= low; ++i) tail += ways[i];
  return std::min(1.0, 2 * tail / all);
}

}  // namespace

double quantile_of(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = q * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(at);
  if (below + 1 >= values.size()) return values.back();
  return values[below] + (at - static_cast<double>(below)) * (values[below + 1] - values[below]);
}

double median_of(std::vector<double> values) { return quantile_of(std::move(values), 0.5); }

Summary summary_of(const std::vector<double>& values) {
  Summary summary;
  summary.n = static_cast<int>(values.size());
  if (values.empty()) return summary;
  summary.mean = mean_of(values), summary.median = median_of(values);
  if (values.size() < 2) return summary;
  summary.sd = std::sqrt(variance_of(values));
  if (summary.mean != 0) summary.cv = *summary.sd / std::abs(summary.mean);
  const double degrees = static_cast<double>(summary.n - 1);
  const double half = math::quantile(math::complement(math::students_t(degrees), 0.025)) * *summary.sd /
                      std::sqrt(static_cast<double>(summary.n));
  summary.confidence = Interval{summary.mean - half, summary.mean + half};
  return summary;
}

Summary positive_summary_of(const std::vector<double>& values) {
  Summary summary = summary_of(values);
  if (!summary.confidence || summary.mean <= 0) return summary;
  const double factor = std::exp((summary.confidence->high - summary.mean) / summary.mean);
  summary.confidence = Interval{summary.mean / factor, summary.mean * factor};
  return summary;
}

std::optional<double> paired_t(const std::vector<double>& differences) {
  if (differences.size() < 2) return std::nullopt;
  const double n = static_cast<double>(differences.size()), variance = variance_of(differences);
  if (variance <= 0) return std::nullopt;
  return two_sided_t(mean_of(differences) / std::sqrt(variance / n), n - 1);
}

Paired paired_of(std::vector<double> differences, double trim) {
  const size_t n = differences.size(), aside = set_aside(n, trim), left = n - 2 * aside;
  std::sort(differences.begin(), differences.end());
  const auto begin = differences.begin() + static_cast<std::ptrdiff_t>(aside),
             end = differences.end() - static_cast<std::ptrdiff_t>(aside);
  Paired result;
  result.n = static_cast<int>(n);
  if (n > 0) result.mean = mean_of({begin, end});
  if (left < 2) return result;
  std::fill(differences.begin(), begin, *begin), std::fill(end, differences.end(), *(end - 1));
  const double deviation = std::sqrt(variance_of(differences)), kept = static_cast<double>(left),
               error = deviation * std::sqrt(static_cast<double>(n)) / kept;
  result.sd = error * std::sqrt(static_cast<double>(n)), result.degrees = kept - 1;
  const double half = math::quantile(math::complement(math::students_t(kept - 1), 0.025)) * error;
  result.confidence = Interval{result.mean - half, result.mean + half};
  if (error > 0) result.p = two_sided_t(result.mean / error, kept - 1);
  return result;
}

Unpaired unpaired_of(const std::vector<double>& a, const std::vector<double>& b) {
  Unpaired result;
  if (a.empty() || b.empty()) return result;
  result.mean = mean_of(a) - mean_of(b);
  if (a.size() < 2 || b.size() < 2) return result;
  const double va = variance_of(a) / static_cast<double>(a.size()), vb = variance_of(b) / static_cast<double>(b.size());
  if (va + vb <= 0) return result;
  result.degrees = (va + vb) * (va + vb) /
                   (va * va / static_cast<double>(a.size() - 1) + vb * vb / static_cast<double>(b.size() - 1));
  const double error = std::sqrt(va + vb),
               half = math::quantile(math::complement(math::students_t(result.degrees), 0.025)) * error;
  result.confidence = Interval{result.mean - half, result.mean + half};
  result.p = two_sided_t(result.mean / error, result.degrees);
  return result;
}

std::optional<double> welch_t(const std::vector<double>& a, const std::vector<double>& b) {
  return unpaired_of(a, b).p;
}

std::optional<double> mann_whitney(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.empty() || b.empty()) return std::nullopt;
  double u = 0;
  for (const double x : a)
    for (const double y : b) u += x > y ? 1 : x == y ? 0.5 : 0;
  std::vector<double> all = a;
  all.insert(all.end(), b.begin(), b.end());
  std::sort(all.begin(), all.end());
  double ties = 0;
  for (size_t i = 0; i < all.size();) {
    const auto end = std::upper_bound(all.begin() + static_cast<std::ptrdiff_t>(i), all.end(), all[i]);
    const double t = static_cast<double>(end - all.begin()) - static_cast<double>(i);
    ties += t * t * t - t, i = static_cast<size_t>(end - all.begin());
  }
  if (ties == 0 && a.size() <= kExact && b.size() <= kExact) return exact_mann_whitney(u, a.size(), b.size());
  const double n = static_cast<double>(a.size()), m = static_cast<double>(b.size()), both = n + m;
  const double variance = n * m / 12 * (both + 1 - ties / (both * (both - 1)));
  if (variance <= 0) return std::nullopt;
  const double z = std::max(0.0, std::abs(u - n * m / 2) - 0.5) / std::sqrt(variance);
  return std::min(1.0, 2 * math::cdf(math::complement(math::normal(), z)));
}

int64_t pairs_needed(double difference, double sd, double level, double trim) {
  const double effect = std::abs(difference) / sd;
  constexpr int64_t kMost = 1000000;
  int64_t low = 1, high = kMost;  // too few; enough, where none is set aside
  while (high - low > 1) {
    const int64_t n = low + (high - low) / 2;
    (power_of(effect, n, level, 0) < kPower ? low : high) = n;
  }
  while (high < kMost && power_of(effect, high, level, trim) < kPower) ++high;
  return high;
}

double shown_by(int64_t n, double sd, double level, double trim) {
  double low = 0, high = 1e4;  // deviations
  for (int i = 0; i < 50; ++i) {
    const double effect = (low + high) / 2;
    (power_of(effect, n, level, trim) < kPower ? low : high) = effect;
  }
  return high * sd;
}

double sd_at_most(double sd, double degrees) {
  return sd * std::sqrt(degrees / math::quantile(math::chi_squared(degrees), 1 - kSure));
}

std::vector<double> holm(const std::vector<double>& p_values) {
  std::vector<size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p_values[a] < p_values[b]; });
  std::vector<double> corrected(p_values.size());
  double largest = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    largest = std::max(largest, p_values[order[i]] * static_cast<double>(order.size() - i));
    corrected[order[i]] = std::min(1.0, largest);
  }
  return corrected;
}

}  // namespace drivetrain::study
