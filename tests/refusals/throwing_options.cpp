// Its option table cannot be made.
#include <drivetrain/monitor.h>

#include <stdexcept>

namespace {

class Toy : public drivetrain::Monitor {
 public:
  using Options = drivetrain::NoOptions;
  static drivetrain::OptionTable options() { throw std::logic_error("the tape drive is on fire"); }
  Toy(const Options&, const drivetrain::Services&) {}
  void on_event(const drivetrain::Event&) override {}
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Monitor, "toy", Toy)
