// A right library with four entries: one that works, two whose constructors throw, one whose create gives nothing.
#include <drivetrain/monitor.h>

#include <stdexcept>

namespace {

class Toy : public drivetrain::Monitor {
 public:
  Toy(const drivetrain::NoOptions&, const drivetrain::Services&) {}
  void on_event(const drivetrain::Event&) override {}
};

class Throws : public Toy {
 public:
  Throws(const drivetrain::NoOptions& options, const drivetrain::Services& services) : Toy(options, services) {
    throw std::logic_error("the tape drive is on fire");
  }
};

class Refuses : public Toy {
 public:
  Refuses(const drivetrain::NoOptions& options, const drivetrain::Services& services) : Toy(options, services) {
    throw drivetrain::fail(drivetrain::ErrorCode::config, "7 heads do not divide 64");
  }
};

void* create_nobody(const void*) { return nullptr; }

}  // namespace

DRIVETRAIN_PLUGINS(DRIVETRAIN_ENTRY(drivetrain::Monitor, "toy", Toy),
                   DRIVETRAIN_ENTRY(drivetrain::Monitor, "throws", Throws),
                   DRIVETRAIN_ENTRY(drivetrain::Monitor, "refuses", Refuses),
                   DrivetrainEntry{sizeof(DrivetrainEntry), "monitor", "nobody",
                                   &drivetrain::plugin_entry::option_table<Toy>, &create_nobody})
