#include "step/figure_names.h"

#include <iterator>
#include <set>
#include <sstream>

namespace drivetrain {

bool is_own_figure(const std::string& name) {
  static const std::set<std::string> own = [] {
    std::istringstream names(
        "step loss grad_norm lr tokens documents padding loss_scale skipped step_s tokens_per_s tgs tflops "
        "flops_formula peak_memory_bytes peak_reserved_bytes host_peak_memory_bytes valid_loss");
    return std::set<std::string>(std::istream_iterator<std::string>(names), {});
  }();
  return name.starts_with(kLossTermFigures) || own.contains(name);
}

}  // namespace drivetrain
