// Keeps everything: what happens without a policy, by name.
#include <drivetrain/recompute.h>

namespace drivetrain {
namespace {

class KeepAll : public Recompute {
 public:
  KeepAll(const NoOptions&, const Services&) {}
  void plan(PlanContext& ctx) override { ctx.capturable(); }
  Keep keep(const Region&) const override { return Keep::all; }
};

}  // namespace
}  // namespace drivetrain

DRIVETRAIN_PLUGIN(drivetrain::Recompute, "none", drivetrain::KeepAll)
