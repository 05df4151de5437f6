// It uses what is inside of libdrivetrain.so, which the linker finds there.
#include <string>

#include <drivetrain/monitor.h>

namespace drivetrain {
std::string shown(const std::string& name);  // base/printable.h
}

namespace {

class Toy : public drivetrain::Monitor {
 public:
  Toy(const drivetrain::NoOptions&, const drivetrain::Services&) {}
  void on_event(const drivetrain::Event&) override { drivetrain::shown("x"); }
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Monitor, "toy", Toy)
