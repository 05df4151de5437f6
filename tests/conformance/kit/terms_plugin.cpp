// strategy/terms: the layers of terms.h in a run. Not among the installed plugins; suites open it (decorators.h).
#include <drivetrain/strategy.h>

#include "terms.h"

namespace {

using namespace drivetrain;

class Terms final : public Strategy {
 public:
  struct Options {
    bool adapters = true;
  };
  static OptionTable options() {
    return table<Options>().field("adapters", &Options::adapters,
                                  "the vectors have the role of adapters; false: that of matrices");
  }
  Terms(const Options& options, const Services&) : role_(options.adapters ? ParamRole::adapter : ParamRole::matrix) {}
  void plan(PlanContext& ctx) override { ctx.capturable(); }
  void build(Builder& builder) override { builder.layers = std::make_shared<test::TermLayers>(builder.layers, role_); }

 private:
  const ParamRole role_;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Strategy, "terms", Terms)
