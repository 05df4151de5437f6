// What effects of full crosses and of fractions share.
#pragma once

#include <string>
#include <vector>

#include "study/analysis.h"

namespace drivetrain::study {

// Of one value per block, a difference on the scale; `trim` as in paired_of.
Effect effect_of_blocks(const std::vector<double>& differences, double trim, Scale scale = Scale::ratio);
void correct_effects(std::vector<Effect>& effects);  // Holm's correction over all of them

std::string main_name(const std::string& factor, const std::string& level, const std::string& base);
std::string interaction_name(const std::string& f, const std::string& level, const std::string& g,
                             const std::string& other);

// Main effects and interactions of a fraction of a cross, by least squares, with what each cannot be told from.
// Interactions of three and more factors are taken to be none.
struct FractionEffects {
  std::vector<Effect> effects, interactions;
  std::vector<std::string> refused;  // effects that cannot be estimated, with the reason
};
FractionEffects fraction_effects(const std::vector<CellResult>& cells, double trim = 0, Scale scale = Scale::ratio);

}  // namespace drivetrain::study
