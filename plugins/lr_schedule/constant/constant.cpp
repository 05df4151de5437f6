// No schedule: every step uses the optimizer's own values.
#include <drivetrain/lr_schedule.h>
#include <drivetrain/services.h>

namespace {

using namespace drivetrain;

class Constant : public LrSchedule {
 public:
  Constant(const NoOptions&, const Services&) {}
  Hyper at(const Progress&, const Hyper& base) const override { return base; }
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::LrSchedule, "constant", Constant)
