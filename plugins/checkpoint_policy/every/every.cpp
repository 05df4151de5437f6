// Saves every `steps` steps, every `minutes` minutes and in the end; keeps the last few and every n-th forever.
#include <drivetrain/checkpoint_policy.h>

#include <drivetrain/error.h>
#include <drivetrain/log.h>
#include <drivetrain/services.h>

namespace {

using namespace drivetrain;

class Every : public CheckpointPolicy {
 public:
  struct Options {
    int64_t steps = 0, keep = 2, keep_every = 0;
    double minutes = 0;
    bool at_end = true;
    std::string when_busy = "wait";
  };
  static OptionTable options() {
    using O = Options;
    return table<O>()
        .field("steps", &O::steps, "a checkpoint after every so many steps; 0: none for that reason")
        .at_least(0)
        .field("minutes", &O::minutes,
               "a checkpoint when so many minutes have passed since the last one of this policy; 0: none "
               "for that reason")
        .at_least(0)
        .field("at_end", &O::at_end, "a checkpoint after the last step")
        .field("when_busy", &O::when_busy,
               "if the checkpoint before is still being written: wait for it, or leave this one out")
        .one_of({"wait", "skip"})
        .field("keep", &O::keep, "how many of the newest checkpoints stay; 0: all")
        .at_least(0)
        .field("keep_every", &O::keep_every, "checkpoints at multiples of so many steps stay forever; 0: none")
        .at_least(0);
  }
  Every(const Options& options, const Services& services)
      : options_(options), log_(services.log), speaks_(services.rank == 0) {}

  bool due(const SaveMoment& moment) override {
    const bool by_steps = options_.steps > 0 && moment.step % options_.steps == 0;
    const bool by_time = options_.minutes > 0 && moment.seconds - saved_at_ >= 60 * options_.minutes;
    const bool at_end = options_.at_end && moment.done;
    if (!by_steps && !by_time && !at_end) return false;
    if (moment.busy && !at_end && options_.when_busy == "skip") {
      // One that is due by time is asked for again after every step until it is saved: that is one, and is said once.
      if (speaks_ && (by_steps || !said_late_))
        log_.warning(concat("no checkpoint after step ", moment.step, ": the one before is still being written"));
      said_late_ = said_late_ || by_time;
      return false;
    }
    saved_at_ = moment.seconds, said_late_ = false;
    return true;
  }

  std::vector<bool> keep(const std::vector<StoredTag>& tags) override {
    std::vector<bool> kept;
    for (size_t i = 0; i < tags.size(); ++i) {
      const bool among_last = options_.keep == 0 || i < static_cast<size_t>(options_.keep);
      kept.push_back(among_last || (options_.keep_every > 0 && tags[i].step % options_.keep_every == 0));
    }
    return kept;
  }

 private:
  const Options options_;
  Log& log_;
  const bool speaks_;
  double saved_at_ = 0;     // seconds since this start of the run: a restart begins to count anew
  bool said_late_ = false;  // that one which is due by time waits
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::CheckpointPolicy, "every", Every)
