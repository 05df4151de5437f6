// The figures of the cells that two studies share: outcomes and speed, with intervals.
#pragma once

#include <string>
#include <vector>

#include "study/analysis.h"

namespace drivetrain::study {

struct FigurePair {
  const CellResult *a, *b;
  std::string why_not;  // there is nothing to compare: the state of a cell, or the figure that it lacks; "": there is
  std::string note;     // runs of it without the figure; "": none
  int n_a = 0, n_b = 0;
  double mean_a = 0, mean_b = 0;
  bool by_seed = false;
  bool is_constant = false;  // repeats do not vary, so that there is no p-value
  Comparison comparison{};   // of B against A; p-values by the paired test or Welch's, in `paired`
};

struct Figure {
  std::string name;
  bool is_speed = false, higher = true;  // is better
  Scale scale = Scale::ratio;
  std::vector<FigurePair> pairs;  // of the cells with one id, in A's order
};

// Every outcome of the two, which have the same ones, and the speed after them. Speeds of two studies did not run side
// by side, and Welch's test decides; outcomes are paired by seed where both studies gave their repeats seeds of their
// own and share two of them.
std::vector<Figure> compared_figures(const Analysis& a, const Analysis& b);

}  // namespace drivetrain::study
