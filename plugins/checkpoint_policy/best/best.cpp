// Saves when a figure is better than ever before, and keeps the best few.
#include <drivetrain/checkpoint_policy.h>

#include <algorithm>
#include <limits>

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
        .at_least(1);
  }
  Best(const Options& options, const Services&)
      : options_(options), best_(sign() * std::numeric_limits<double>::infinity()) {}

  bool due(const SaveMoment& moment) override {
    const Value* figure = moment.figures.find(options_.metric);
    if (!figure || !figure->is_number()) return false;
    if (sign() * figure->as_double() >= sign() * best_) return false;
    best_ = figure->as_double();
    return true;
  }

  // Of equal figures the newer checkpoint.
  std::vector<bool> keep(const std::vector<StoredTag>& tags) override {
    std::vector<bool> kept(tags.size(), false);
    std::vector<size_t> order;
    for (size_t i = 0; i < tags.size(); ++i)
      if (const Value* figure = tags[i].figures.find(options_.metric); figure && figure->is_number())
        order.push_back(i);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      const auto value = [&](size_t i) { return sign() * tags[i].figures.find(options_.metric)->as_double(); };
      return value(a) < value(b);
    });
    for (size_t i = 0; i < std::min(order.size(), static_cast<size_t>(options_.keep)); ++i) kept[order[i]] = true;
    return kept;
  }

  void state(StateVisitor& visitor) override { visitor.number("best", best_); }

 private:
  double sign() const { return options_.mode == "min" ? 1 : -1; }

  const Options options_;
  double best_;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::CheckpointPolicy, "best", Best)
