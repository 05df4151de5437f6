// The statistics of a study, with Boost.Math's distributions. Pure functions.
#pragma once

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

double median_of(std::vector<double> values);              // 0 of none
double quantile_of(std::vector<double> values, double q);  // linear between neighbours

// Two-sided p-values; none: there are too few values, or they do not vary.
std::optional<double> paired_t(const std::vector<double>& differences);
std::optional<double> welch_t(const std::vector<double>& a, const std::vector<double>& b);
// Exact where no two values are equal and both groups have at most 25; else the normal approximation with the
// corrections for ties and continuity.
std::optional<double> mann_whitney(const std::vector<double>& a, const std::vector<double>& b);

// Holm's correction of several p-values, in the same order.
std::vector<double> holm(const std::vector<double>& p_values);

}  // namespace drivetrain::study
