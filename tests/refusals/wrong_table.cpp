// Its option table contradicts itself: the default lies outside the range.
#include <drivetrain/monitor.h>

namespace {

class Toy : public drivetrain::Monitor {
 public:
  struct Options {
    int64_t every = 0;
  };
  static drivetrain::OptionTable options() {
    return drivetrain::table<Options>().field("every", &Options::every, "steps between two lines").at_least(1);
  }
  Toy(const Options&, const drivetrain::Services&) {}
  void on_event(const drivetrain::Event&) override {}
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Monitor, "toy", Toy)
