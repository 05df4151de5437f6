// Rates of products of several shapes as the three numbers that a hardware file has for them. Pure; any thread.
#pragma once

#include <vector>

#include "internal.h"
#include "predict/hardware.h"

namespace drivetrain {

struct MeasuredProduct {
  double rows = 0, out = 0, in = 0;
  double rate = 0;  // FLOP/s
};

struct ProductFit {
  ProductRates rates;
  double peak = 0;   // FLOP/s: of the fastest, or what the fit gives products without end
  double error = 0;  // root of the mean square of the logarithms of planned / measured
};

// At least one product.
DRIVETRAIN_INTERNAL ProductFit fit_products(const std::vector<MeasuredProduct>& products);

}  // namespace drivetrain
