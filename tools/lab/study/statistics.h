// The statistics of a study, with Boost.Math's distributions. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace drivetrain::study {

struct Interval {
  double low = 0, high = 0;
};

// sd and interval need two values, p none of them equal to all others.
struct Summary {
  int n = 0;
  double mean = 0, median = 0;
  std::optional<double> sd, cv;        // of the sample; cv is sd / mean
  std::optional<Interval> confidence;  // 95 % of the mean, Student's t
};
Summary summary_of(const std::vector<double>& values);
// Of values above 0: the interval is that of the mean's logarithm (by its first derivative), so that it never goes
// below 0; with little variation it is Student's.
Summary positive_summary_of(const std::vector<double>& values);

double median_of(std::vector<double> values);              // 0 of none
double quantile_of(std::vector<double> values, double q);  // linear between neighbours

// Two-sided p-values; none: there are too few values, or they do not vary.
std::optional<double> paired_t(const std::vector<double>& differences);
std::optional<double> welch_t(const std::vector<double>& a, const std::vector<double>& b);
// The mean of a less that of b, of groups that were not paired, with Welch's interval. 0 degrees of freedom: a group
// has one value, or neither varies.
struct Unpaired {
  double mean = 0, degrees = 0;
  std::optional<Interval> confidence;  // 95 %
  std::optional<double> p;
};
Unpaired unpaired_of(const std::vector<double>& a, const std::vector<double>& b);
// Exact where no two values are equal and both groups have at most 25; else the normal approximation with the
// corrections for ties and continuity.
std::optional<double> mann_whitney(const std::vector<double>& a, const std::vector<double>& b);

// Differences within pairs: Student's paired test, or Tukey and McLaughlin's, which sets the share `trim` of them aside
// at each end, so that a few pairs during which something else ran do not decide. `sd`: by which a mean of n such pairs
// varies, times the root of n.
struct Paired {
  int n = 0;
  double mean = 0, sd = 0, degrees = 0;  // of freedom; 0: too few pairs
  std::optional<Interval> confidence;
  std::optional<double> p;
};
Paired paired_of(std::vector<double> differences, double trim);

// How many pairs the test of paired_of needs at this level to show a true mean of `difference` with 80 % power, where
// `sd` is Paired's; at most 1000000. It is the first such number: with `trim`, one more pair can be set aside at each
// end of the next one, whose power is then a little smaller.
int64_t pairs_needed(double difference, double sd, double level, double trim = 0);
// The smallest true mean that n pairs show with that power. n from 2.
double shown_by(int64_t n, double sd, double level, double trim = 0);
// Paired's `sd` is a guess. In four of five cases the true one is below this bound (chi-square).
double sd_at_most(double sd, double degrees);

// Holm's correction of several p-values, in the same order.
std::vector<double> holm(const std::vector<double>& p_values);

}  // namespace drivetrain::study
