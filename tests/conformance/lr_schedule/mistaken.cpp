// A linear warmup, with a mistake that can be asked for.
#include <drivetrain/lr_schedule.h>

#include <algorithm>

#include <drivetrain/services.h>

namespace {

using namespace drivetrain;

class Mistaken : public LrSchedule {
 public:
  struct Options {
    std::string mistake = "none";
  };
  static OptionTable options() {
    return table<Options>()
        .field("mistake", &Options::mistake, "what is wrong")
        .one_of({"none", "counts_its_calls", "gives_all_groups_of_a_step_one_rate", "decays_by_the_highest_step",
                 "divides_by_the_length_of_the_run", "falls_below_zero", "negative_momentum",
                 "decays_more_with_every_call", "counts_and_shows_it", "counts_and_shows_half"});
  }
  Mistaken(const Options& options, const Services&) : mistake_(options.mistake) {}

  Hyper at(const Progress& progress, const Hyper& base) const override {
    Hyper hyper = base;
    ++calls_;
    highest_ = counts() ? highest_ + calls_ % 3 : std::max(highest_, progress.updates);
    const auto step = static_cast<double>(is("counts_its_calls") ? calls_ : progress.updates + 1);
    hyper.lr = base.lr * std::min(1.0, step / 20);
    if (is("gives_all_groups_of_a_step_one_rate") && last_step_ == progress.updates) hyper.lr = last_rate_;
    last_step_ = progress.updates, last_rate_ = hyper.lr;
    if (is("decays_by_the_highest_step")) hyper.weight_decay *= 1 + static_cast<double>(highest_);
    if (is("divides_by_the_length_of_the_run"))  // which may be unknown
      hyper.lr *= 1 - static_cast<double>(progress.updates) / static_cast<double>(progress.train_steps);
    if (is("falls_below_zero")) hyper.lr *= 1 - step / 100;
    if (is("negative_momentum")) hyper.momentum = -base.momentum;
    if (is("decays_more_with_every_call")) hyper.weight_decay *= static_cast<double>(calls_);
    if (counts()) hyper.lr *= 1.0 / static_cast<double>(1 + calls_ % 7) + 1.0 / static_cast<double>(1 + highest_);
    return hyper;
  }
  void state(StateVisitor& visitor) override {
    if (counts()) visitor.integer("calls", calls_);
    if (is("counts_and_shows_it")) visitor.integer("highest", highest_);
  }

 private:
  bool counts() const { return is("counts_and_shows_it") || is("counts_and_shows_half"); }
  bool is(const char* mistake) const { return mistake_ == mistake; }

  const std::string mistake_;
  mutable int64_t calls_ = 0, highest_ = 0, last_step_ = -1;
  mutable double last_rate_ = 0;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::LrSchedule, "mistaken", Mistaken)
