// strategy/terms: the layers of terms.h in a run. Not among the installed plugins; suites open it (decorators.h).
#include <drivetrain/strategy.h>

#include "terms.h"

namespace {

using namespace drivetrain;

class Terms final : public Strategy {
 public:
  Terms(const NoOptions&, const Services&) {}
  void plan(PlanContext& ctx) override { ctx.capturable(); }
  void build(Builder& builder) override { builder.layers = std::make_shared<test::TermLayers>(builder.layers); }
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Strategy, "terms", Terms)
