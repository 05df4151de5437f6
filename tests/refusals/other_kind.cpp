// Manifest and descriptor say monitor; what it creates is something else.
#include <drivetrain/lr_schedule.h>
#include <drivetrain/monitor.h>

namespace {

class Schedule : public drivetrain::LrSchedule {
 public:
  Schedule(const drivetrain::NoOptions&, const drivetrain::Services&) {}
  drivetrain::Hyper at(const drivetrain::Progress&, const drivetrain::Hyper& base) const override { return base; }
};

}  // namespace

DRIVETRAIN_PLUGINS(DrivetrainEntry{sizeof(DrivetrainEntry), "monitor", "toy",
                                   &drivetrain::plugin_entry::option_table<Schedule>,
                                   &drivetrain::plugin_entry::create<drivetrain::LrSchedule, Schedule>})
