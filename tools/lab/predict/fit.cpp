#include "predict/fit.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

constexpr double kMisprint = 0.01;  // error beyond which a row weighs less
constexpr int kMostRounds = 60;
constexpr double kStep = 1e-4, kMostStep = 0.5;  // of a constant's logarithm
constexpr double kLeast = 1e-3, kMost = 1e3;     // of a constant, over where it started

using Matrix = std::vector<std::vector<double>>;

// a x = b by elimination; a is symmetric and, with its damping, positive.
std::vector<double> solved(Matrix a, std::vector<double> b) {
  const size_t n = b.size();
  for (size_t i = 0; i < n; ++i)
    for (size_t row = i + 1; row < n; ++row) {
      const double times = a[row][i] / a[i][i];
      for (size_t column = i; column < n; ++column) a[row][column] -= times * a[i][column];
      b[row] -= times * b[i];
    }
  for (size_t i = n; i-- > 0;) {
    for (size_t column = i + 1; column < n; ++column) b[i] -= a[i][column] * b[column];
    b[i] /= a[i][i];
  }
  return b;
}

double log_error(const FitRow& row, const FitConstants& constants) { return std::log1p(tgs_error(row, constants)); }

// Levenberg and Marquardt's way, in logarithms of the constants, with weights that make the sum of fit.h.
class Fit {
 public:
  Fit(const std::vector<FitRow>& rows, FitConstants& constants) : rows_(rows), constants_(constants) {
    for (FitConstant& one : constants_of(constants))
      if (is_fitted(one.from)) free_.push_back(std::move(one));
    for (const FitConstant& one : free_) {
      start_.push_back(one.at(constants_));
      if (start_.back() <= 0)
        throw fail(ErrorCode::config, one.name, " is fitted to rows and begins at 0\n   give it a first guess above 0");
    }
  }

  void run() {
    double damping = 1e-3, sum = sum_of(errors());
    for (int round = 0; round < kMostRounds && damping < 1e6; ++round) {
      const std::vector<double> before = values(), step = step_with(damping);
      for (size_t i = 0; i < free_.size(); ++i) {
        const double moved = before[i] * std::exp(std::clamp(step[i], -kMostStep, kMostStep));
        free_[i].at(constants_) = std::clamp(moved, kLeast * start_[i], kMost * start_[i]);
      }
      const double next = sum_of(errors());
      if (next < sum) {
        const bool done = sum - next < 1e-9 * sum;
        sum = next, damping = std::max(damping / 5, 1e-9);
        if (done) return;
      } else {
        for (size_t i = 0; i < free_.size(); ++i) free_[i].at(constants_) = before[i];
        damping *= 4;
      }
    }
  }

 private:
  std::vector<double> values() const {
    std::vector<double> list;
    for (const FitConstant& one : free_) list.push_back(one.at(constants_));
    return list;
  }
  std::vector<double> errors() const {
    std::vector<double> list;
    for (const FitRow& row : rows_) list.push_back(log_error(row, constants_));
    return list;
  }
  static double sum_of(const std::vector<double>& errors) {
    double sum = 0;
    for (const double error : errors) sum += std::sqrt(1 + error * error / (kMisprint * kMisprint));
    return sum;
  }
  // Of the errors by each constant's logarithm.
  Matrix slopes(const std::vector<double>& errors_now) const {
    Matrix slopes(rows_.size(), std::vector<double>(free_.size()));
    for (size_t i = 0; i < free_.size(); ++i) {
      double& value = free_[i].at(constants_);
      const double before = std::exchange(value, value * std::exp(kStep));
      for (size_t row = 0; row < rows_.size(); ++row)
        slopes[row][i] = (log_error(rows_[row], constants_) - errors_now[row]) / kStep;
      value = before;
    }
    return slopes;
  }
  std::vector<double> step_with(double damping) const {
    const std::vector<double> now = errors();
    const Matrix slope = slopes(now);
    const size_t n = free_.size();
    Matrix a(n, std::vector<double>(n));
    std::vector<double> b(n);
    for (size_t row = 0; row < rows_.size(); ++row) {
      const double weight = 1 / std::sqrt(1 + now[row] * now[row] / (kMisprint * kMisprint));
      for (size_t i = 0; i < n; ++i) {
        b[i] -= weight * slope[row][i] * now[row];
        for (size_t j = 0; j < n; ++j) a[i][j] += weight * slope[row][i] * slope[row][j];
      }
    }
    for (size_t i = 0; i < n; ++i) a[i][i] = a[i][i] * (1 + damping) + 1e-9;
    return solved(std::move(a), std::move(b));
  }

  const std::vector<FitRow>& rows_;
  FitConstants& constants_;
  std::vector<FitConstant> free_;
  std::vector<double> start_;
};

FitConstant of_machine(const FitConstants& c, const char* name, double& (*at)(Hardware&)) {
  return {std::string("machine: ") + name, origin_of(c.hardware.from, name),
          [at](FitConstants& all) -> double& { return at(all.hardware); }};
}

void add_machine(const FitConstants& c, std::vector<FitConstant>& list) {
  using H = Hardware;
  const std::pair<const char*, double& (*)(H&)> all[] = {
      {"products.share", [](H& h) -> double& { return h.products.share; }},
      {"products.half_rows", [](H& h) -> double& { return h.products.half_rows; }},
      {"products.half_width", [](H& h) -> double& { return h.products.half_width; }},
      {"attention.share", [](H& h) -> double& { return h.attention.share; }},
      {"attention.half_seq", [](H& h) -> double& { return h.attention.half_seq; }},
      {"memory.gb_per_s", [](H& h) -> double& { return h.memory.gb_per_s; }},
      {"memory.share", [](H& h) -> double& { return h.memory.share; }},
      {"host_link.gb_per_s", [](H& h) -> double& { return h.host_link.gb_per_s; }},
      {"host_link.share", [](H& h) -> double& { return h.host_link.share; }},
      {"host_link.latency_us", [](H& h) -> double& { return h.host_link.latency_us; }},
      {"network.gb_per_s", [](H& h) -> double& { return h.network.gb_per_s; }},
      {"network.share", [](H& h) -> double& { return h.network.share; }},
      {"network.latency_us", [](H& h) -> double& { return h.network.latency_us; }},
      {"network.rank_latency_us", [](H& h) -> double& { return h.network.rank_latency_us; }},
      {"overheads.unit_us", [](H& h) -> double& { return h.overheads.unit_us; }},
      {"overheads.step_us", [](H& h) -> double& { return h.overheads.step_us; }}};
  for (const auto& [name, at] : all) list.push_back(of_machine(c, name, at));
}

void add_profile(const std::string& profile, const Profile& p, std::vector<FitConstant>& list) {
  using Time = ProfileTime;
  const std::pair<const char*, double Time::*> all[] = {{"time.step_s", &Time::step_s},
                                                        {"time.owner_s", &Time::owner_s},
                                                        {"time.update_bytes", &Time::update_bytes},
                                                        {"time.overlap", &Time::overlap}};
  for (const auto& [name, member] : all)
    list.push_back({profile + ": " + name, origin_of(p.from, name),
                    [profile, at = member](FitConstants& c) -> double& { return (*c.profiles.at(profile).time).*at; }});
}

}  // namespace

std::vector<FitConstant> constants_of(const FitConstants& constants) {
  std::vector<FitConstant> list;
  add_machine(constants, list);
  for (const auto& [name, profile] : constants.profiles)
    if (profile.time) add_profile(name, profile, list);
  return list;
}

double tgs_error(const FitRow& row, const FitConstants& constants) {
  const ProfileTime& time = *constants.profiles.at(row.profile).time;
  return step_time(with_profile(row.work, time), constants.hardware, 0).tgs / row.tgs - 1;
}

FitConstants fitted(const std::vector<FitRow>& rows, FitConstants start) {
  Fit(rows, start).run();
  return start;
}

LeftOut leave_each_out(const std::vector<FitRow>& rows, const FitConstants& start) {
  LeftOut result;
  result.errors.resize(rows.size());
  std::set<std::string> configs;
  for (const FitRow& row : rows) configs.insert(row.config);
  for (const std::string& config : configs) {
    std::vector<FitRow> others;
    std::copy_if(rows.begin(), rows.end(), std::back_inserter(others),
                 [&](const FitRow& row) { return row.config != config; });
    FitConstants without = fitted(others, start);
    for (size_t i = 0; i < rows.size(); ++i)
      if (rows[i].config == config) result.errors[i] = tgs_error(rows[i], without);
    for (const FitConstant& one : constants_of(without)) {
      if (!is_fitted(one.from)) continue;
      const double value = one.at(without);
      auto& [least, most] = result.ranges.try_emplace(one.name, value, value).first->second;
      least = std::min(least, value), most = std::max(most, value);
    }
  }
  return result;
}

}  // namespace drivetrain
