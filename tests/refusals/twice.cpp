// Its code offers one name twice.
#include <drivetrain/monitor.h>

namespace {

class Toy : public drivetrain::Monitor {
 public:
  Toy(const drivetrain::NoOptions&, const drivetrain::Services&) {}
  void on_event(const drivetrain::Event&) override {}
};

}  // namespace

DRIVETRAIN_PLUGINS(DRIVETRAIN_ENTRY(drivetrain::Monitor, "toy", Toy), DRIVETRAIN_ENTRY(drivetrain::Monitor, "toy", Toy))
