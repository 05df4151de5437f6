// halving.cpp
#include <drivetrain/lr_schedule.h>
#include <cmath>

class Halving : public drivetrain::LrSchedule {
 public:
  struct Options {
    int64_t every = 1000;
  };
  static drivetrain::OptionTable options() {
    return drivetrain::table<Options>()
        .field("every", &Options::every, "steps after which the rate is halved")
        .at_least(1);
  }
  Halving(const Options& options, const drivetrain::Services&) : options_(options) {}
  drivetrain::Hyper at(const drivetrain::Progress& p, const drivetrain::Hyper& base) const override {
    drivetrain::Hyper h = base;
    h.lr *= std::pow(0.5, static_cast<double>(p.updates / options_.every));
    return h;
  }

 private:
  Options options_;
};

DRIVETRAIN_PLUGIN(drivetrain::LrSchedule, "halving", Halving)
