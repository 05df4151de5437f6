#include "bench/product_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace drivetrain {
namespace {

constexpr double kSteps[] = {0, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512};

double slower(const MeasuredProduct& p, double half_rows, double half_width) {
  return (1 + half_rows / p.rows) * (1 + half_width / p.out) * (1 + half_width / p.in);
}

}  // namespace

ProductFit fit_products(const std::vector<MeasuredProduct>& products) {
  ProductFit best;
  best.error = std::numeric_limits<double>::infinity();
  double fastest = 0, without_end = 0;
  for (const MeasuredProduct& p : products) fastest = std::max(fastest, p.rate);
  for (const double half_rows : kSteps)
    for (const double half_width : kSteps) {
      double mean = 0, square = 0;
      for (const MeasuredProduct& p : products) mean += std::log(p.rate * slower(p, half_rows, half_width));
      mean /= static_cast<double>(products.size());
      for (const MeasuredProduct& p : products)
        square += std::pow(std::log(p.rate * slower(p, half_rows, half_width)) - mean, 2);
      const double error = std::sqrt(square / static_cast<double>(products.size()));
      if (error >= best.error) continue;
      best.error = error, without_end = std::exp(mean);
      best.rates = {0, half_rows, half_width};
    }
  best.peak = std::max(fastest, without_end);
  best.rates.share = without_end / best.peak;
  return best;
}

}  // namespace drivetrain
