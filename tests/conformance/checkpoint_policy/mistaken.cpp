// Saves when the loss is lower than before, and in every fifth step since; with a mistake that can be asked for.
#include <drivetrain/checkpoint_policy.h>

#include <atomic>
#include <cmath>
#include <limits>

#include <drivetrain/error.h>
#include <drivetrain/services.h>

namespace {

using namespace drivetrain;

class Mistaken : public CheckpointPolicy {
 public:
  struct Options {
    int64_t wait = 5;
    Value free = Value(1);
    std::string mistake = "none";
  };
  static OptionTable options() {
    return table<Options>()
        .field("wait", &Options::wait, "steps without a save after which one is due")
        .at_least(1)
        .field("free", &Options::free, "a number")
        .field("mistake", &Options::mistake, "what is wrong")
        .one_of({"none", "asks_its_rank", "asks_the_number_of_ranks", "counts_over_all_objects",
                 "saves_less_after_keep", "answers_without_tags", "answers_for_the_newest_alone",
                 "wants_figures_of_tags", "keeps_by_turns", "keeps_what_it_saw_best", "forgets_its_best",
                 "forgets_its_count", "visits_its_count_if_there_is_one", "counts_its_visits",
                 "compares_with_no_number", "wants_figures", "takes_anything"});
  }
  Mistaken(const Options& options, const Services& services) : options_(options), services_(services) {
    if (!options.free.is_number() && !is("takes_anything"))
      throw fail(ErrorCode::config, "free is ", options.free.to_json(), "; wanted a number");
  }

  bool due(const SaveMoment& moment) override {
    static std::atomic<int64_t> asked = 0;  // over all objects
    if (is("asks_its_rank") && services_.rank == 2 && moment.step == 9) return true;
    if (is("asks_the_number_of_ranks") && services_.world_size > 1 && moment.step == 9) return true;
    if (is("counts_over_all_objects") && ++asked % 97 == 0) return true;
    ++waited_;
    const bool better = is_better(moment.figures);
    if (!better && waited_ < options_.wait + shy_) return moment.last;
    waited_ = 0;
    return true;
  }

  std::vector<bool> keep(const std::vector<StoredTag>& tags) override {
    if (is("saves_less_after_keep")) shy_ = 1;
    if (is("answers_without_tags") && tags.empty()) return {true};
    std::vector<bool> kept;
    for (const StoredTag& tag : tags) {
      if (is("wants_figures_of_tags")) tag.figures.members();
      kept.push_back(tag.step % 4 == 0);
      if (is("keeps_what_it_saw_best")) best_kept_ = std::max(best_kept_, tag.step % 13);
      if (is("keeps_what_it_saw_best")) kept.back() = tag.step % 13 == best_kept_;
    }
    if (is("keeps_by_turns") && ++turns_ % 2 == 0) kept.flip();
    if (is("answers_for_the_newest_alone") && kept.size() > 5) kept.resize(1);
    return kept;
  }

  void state(StateVisitor& visitor) override {
    if (is("counts_its_visits")) ++waited_;
    if (!is("forgets_its_best")) visitor.number("best", best_);
    if (is("forgets_its_count")) return;
    if (!is("visits_its_count_if_there_is_one") || waited_ > 0) visitor.integer("waited", waited_);
  }

 private:
  bool is(const char* mistake) const { return options_.mistake == mistake; }

  bool is_better(const Value& figures) {
    const Value* loss = figures.find("loss");
    if (is("wants_figures") && !loss) throw fail(ErrorCode::config, "there is no loss");
    if (!loss || !loss->is_number()) return false;
    const double value = loss->as_double();
    if (is("compares_with_no_number") ? value >= best_ : !std::isfinite(value) || value >= best_) return false;
    best_ = value;
    return true;
  }

  const Options options_;
  const Services& services_;
  double best_ = std::numeric_limits<double>::infinity();
  int64_t waited_ = 0, shy_ = 0, turns_ = 0, best_kept_ = 0;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::CheckpointPolicy, "mistaken", Mistaken)
