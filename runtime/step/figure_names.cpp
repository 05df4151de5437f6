#include "step/figure_names.h"

#include <algorithm>
#include <iterator>

namespace drivetrain {
namespace {

constexpr const char* kOwnFigures[] = {"step",
                                       "loss",
                                       "grad_norm",
                                       "lr",
                                       "tokens",
                                       "documents",
                                       "padding",
                                       "loss_scale",
                                       "skipped",
                                       "step_s",
                                       "tokens_per_s",
                                       "tgs",
                                       "tflops",
                                       "flops_formula",
                                       "peak_memory_bytes",
                                       "peak_reserved_bytes",
                                       "host_peak_memory_bytes",
                                       "valid_loss"};

}  // namespace

bool is_own_figure(const std::string& name) {
  return name.starts_with(kLossTermFigures) ||
         std::find(std::begin(kOwnFigures), std::end(kOwnFigures), name) != std::end(kOwnFigures);
}

}  // namespace drivetrain
