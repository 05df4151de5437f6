// Saves when a figure is better than ever before, and keeps the best few.
#include <drivetrain/checkpoint_policy.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include <drivetrain/error.h>
#include <drivetrain/log.h>
#include <drivetrain/random.h>
#include <drivetrain/services.h>

namespace {

using namespace drivetrain;

class Best : public CheckpointPolicy {
 public:
  struct Options {
    std::string metric = "valid_loss", mode = "min";
    int64_t keep = 1;
  };
  static OptionTable options() {
    using O = Options;
    return table<O>()
        .field("metric", &O::metric, "name of the figure, as in metrics.jsonl")
        .field("mode", &O::mode, "whether less or more is better")
        .one_of({"min", "max"})
        .field("keep", &O::keep, "how many of the best checkpoints stay")
        .at_least(1)
        .finish([](O& o) {
          if (o.metric.empty()) throw fail(ErrorCode::config, "metric is empty; name a figure of metrics.jsonl");
        });
  }
  Best(const Options& options, const Services& services)
      : options_(options), log_(services.log), speaks_(services.rank == 0) {}

  bool due(const SaveMoment& moment) override {
    const std::optional<double> figure = figure_of(moment.figures);
    if (moment.done && speaks_ && !figure && best_ == worst()) say_never_seen(moment.figures);
    if (!figure || sign() * *figure >= sign() * best_) return false;
    best_ = *figure;
    return true;
  }

  // Of equal figures the newer checkpoint.
  std::vector<bool> keep(const std::vector<StoredTag>& tags) override {
    std::vector<bool> kept(tags.size(), false);
    std::vector<std::pair<double, size_t>> order;
    for (size_t i = 0; i < tags.size(); ++i)
      if (const std::optional<double> figure = figure_of(tags[i].figures)) order.emplace_back(sign() * *figure, i);
    std::sort(order.begin(), order.end());
    for (size_t i = 0; i < std::min(order.size(), static_cast<size_t>(options_.keep)); ++i)
      kept[order[i].second] = true;
    return kept;
  }

  // The best of another metric or mode is no bar for this one.
  void state(StateVisitor& visitor) override {
    int64_t of = what_is_best();
    visitor.integer("of", of);
    visitor.number("best", best_);
    if (of != what_is_best()) best_ = worst();
  }

 private:
  double sign() const { return options_.mode == "min" ? 1 : -1; }
  double worst() const { return sign() * std::numeric_limits<double>::infinity(); }
  int64_t what_is_best() const { return static_cast<int64_t>(hash_name(options_.mode + " " + options_.metric)); }

  // Only then is it certain: an evaluation may come in any step.
  void say_never_seen(const Value& figures) const {
    std::string names;
    for (const Value::Member& figure : figures.members()) names += (names.empty() ? "" : ", ") + figure.key;
    log_.warning(concat("checkpoint_policy/best: no step of the run had a finite figure \"", options_.metric,
                        "\", so that no checkpoint was the best\n   the figures of its last step are ", names,
                        "; valid_loss is there with eval_interval"));
  }

  // A figure that is no finite number is none: nothing would be better than it, or everything.
  std::optional<double> figure_of(const Value& figures) const {
    const Value* figure = figures.find(options_.metric);
    if (!figure || !figure->is_number() || !std::isfinite(figure->as_double())) return std::nullopt;
    return figure->as_double();
  }

  const Options options_;
  Log& log_;
  const bool speaks_;
  double best_ = worst();
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::CheckpointPolicy, "best", Best)
