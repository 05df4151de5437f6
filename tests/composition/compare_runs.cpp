#include "composition/compare_runs.h"

#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <drivetrain/error.h>

namespace drivetrain::test {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// Keeps the largest of a kind; what is not a number counts as infinite.
void raise(double& worst, double found, Distance& d, const std::string& what) {
  if (std::isnan(found)) found = kInfinite;
  if (found > 1) d.where += concat("\n   ", what, ": ", found, " tolerances");
  worst = std::max(worst, found);
}

void compare_steps(const PlainRun& a, const PlainRun& b, const PlainRun& tolerance, Distance& d) {
  if (a.steps.size() != b.steps.size()) raise(d.loss, kInfinite, d, "number of steps");
  for (size_t i = 0; i < std::min(a.steps.size(), b.steps.size()); ++i) {
    const PlainStep &x = a.steps[i], &y = b.steps[i], &t = tolerance.steps.at(i);
    const std::string step = concat("step ", i + 1, " ");
    raise(d.loss, std::abs(x.loss - y.loss) / t.loss_tolerance, d, concat(step, "loss ", x.loss, " and ", y.loss));
    raise(d.norm, std::abs(x.grad_norm - y.grad_norm) / t.norm_tolerance, d,
          concat(step, "norm ", x.grad_norm, " and ", y.grad_norm));
    if (x.tokens != y.tokens) raise(d.loss, kInfinite, d, concat(step, "tokens ", x.tokens, " and ", y.tokens));
    // The same few float64 operations on both sides.
    if (!(std::abs(x.lr - y.lr) <= 1e-14 * std::abs(y.lr)))
      raise(d.loss, kInfinite, d, concat(step, "lr ", x.lr, " and ", y.lr));
  }
}

}  // namespace

PlainRun figures_of(const RunResult& run) {
  PlainRun figures;
  for (const Value& line : run.metrics) {
    PlainStep s;
    s.loss = line.find("loss")->as_double(), s.grad_norm = line.find("grad_norm")->as_double();
    s.lr = line.find("lr")->as_double(), s.tokens = line.find("tokens")->as_int();
    figures.steps.push_back(s);
  }
  figures.final = read_weights(run.weights_file());
  return figures;
}

double Distance::largest() const { return std::max({loss, norm, weights}); }

Distance distance(const PlainRun& a, const PlainRun& b, const PlainRun& tolerance) {
  Distance d;
  compare_steps(a, b, tolerance, d);
  if (a.final.size() != b.final.size())
    raise(d.weights, kInfinite, d, concat(a.final.size(), " and ", b.final.size(), " tensors"));
  for (const auto& [name, x] : a.final) {
    const auto y = b.final.find(name);
    if (y == b.final.end() || y->second.sizes() != x.sizes()) {
      raise(d.weights, kInfinite, d, name + " is missing or has another shape");
      continue;
    }
    raise(d.weights, ((x - y->second).abs() / tolerance.tolerance.at(name)).max().item<double>(), d, name);
  }
  return d;
}

}  // namespace drivetrain::test
