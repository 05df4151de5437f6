// It uses a function that no library has.
#include <drivetrain/monitor.h>

namespace drivetrain {
int nobody_has_this(int value);
}

namespace {

class Toy : public drivetrain::Monitor {
 public:
  Toy(const drivetrain::NoOptions&, const drivetrain::Services&) {}
  void on_event(const drivetrain::Event&) override { drivetrain::nobody_has_this(1); }
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Monitor, "toy", Toy)
