// Regions of blocks whose memory is large for their work run again; the products with the weights do not.
//
// Source: Korthikanti et al. 2022, "Reducing activation recomputation in large transformer models", section 5, for the
// attention between its projections; norms and activation functions likewise. Thread: main; keep also autograd's.
#include <drivetrain/toolkit/recompute/recompute_blocks.h>

#include <drivetrain/error.h>

#include <algorithm>
#include <optional>

namespace drivetrain {
namespace {

struct SelectiveOptions {
  std::optional<std::vector<std::string>> regions;
  double fraction = 1;
};

class Selective : public Recompute {
 public:
  using Options = SelectiveOptions;
  static OptionTable options() {
    return table<Options>()
        .field(
            "regions", &Options::regions,
            "what runs again, of the regions that the run's blocks have: norm, attn.core (attention between its "
            "projections), mlp.act (the activation function), or others; null: norm and mlp.act, and attn.core where "
            "it costs next to nothing")
        .field("fraction", &Options::fraction,
               "share of a rank's blocks in which regions run again, counted from its first block")
        .range(0, 1);
  }
  Selective(const Options& options, const Services&) : options_(options), blocks_(options.fraction) {}

  void plan(PlanContext& ctx) override {
    ctx.capturable();
    if (!ctx.run().training) return;
    choose(forward_shares(ctx).attention);
    if (regions_.empty())
      return ctx.no_effect("regions",
                           "the list is empty: all activations are kept. It takes norm, attn.core and mlp.act");
    const double share = blocks_.plan(ctx);
    if (share == 0) return;
    report_options_without_effect(ctx);
    report_costs(ctx, share);
  }

  void choose(const UnitList& units) override { blocks_.choose(units); }

  Keep keep(const Region& region) const override {
    return !region.name.empty() && names(region.name) && blocks_.has(region.unit) ? Keep::input : Keep::all;
  }

 private:
  // Attentions compute their scores again anyway, so that its result is all that the region frees.
  static constexpr double kNextToNothing = 0.01;  // of a step

  void choose(double attention) {
    if (options_.regions) return void(regions_ = *options_.regions);
    regions_ = {"norm", "mlp.act"};
    if (attention > 0 && attention <= kNextToNothing) regions_.push_back("attn.core");
  }

  bool names(std::string_view region) const {
    return std::find(regions_.begin(), regions_.end(), region) != regions_.end();
  }

  // Before the units are known, and where one of them does not say what it keeps, any region may free something.
  bool frees(const std::string& region) const {
    const auto& declared = blocks_.regions();
    if (!declared) return true;
    const auto found = declared->find(region);
    return found != declared->end() && found->second;
  }

  void report_options_without_effect(PlanContext& ctx) const {
    const auto& declared = blocks_.regions();
    if (!declared || blocks_.chosen() == 0) return;
    std::string all;
    for (const auto& [region, any] : *declared) all += (all.empty() ? "" : ", ") + region;
    for (const std::string& region : regions_) {
      if (frees(region)) continue;
      if (declared->contains(region))
        ctx.no_effect("region " + region,
                      "the blocks of this run compute it again in any case, and keep nothing of it");
      else if (options_.regions)
        ctx.refuse(concat("regions names \"", region, "\", which no block of this run has",
                          all.empty() ? "" : "; they have " + all));
      else
        ctx.no_effect("region " + region,
                      concat("no block of this run has it", all.empty() ? "" : "; they have " + all));
    }
  }

  void report_costs(PlanContext& ctx, double share) const {
    const double attention = forward_shares(ctx).attention * share;
    const std::string figure = attention > 0 ? concat("about ", percent(attention), " of a step") : "some work";
    if (names("attn.core")) {
      if (frees("attn.core"))
        ctx.cost(
            concat("the forward of attention runs twice: ", figure, " more, for one [B, S, hidden] less per block"));
      return;
    }
    if (options_.regions || !frees("attn.core")) return;
    const bool others = frees("norm") || frees("mlp.act");
    ctx.cost(concat(others ? "norms and activation functions run twice. " : "", "attn.core does not",
                    others ? "" : " run twice", ": its forward is ", figure,
                    " and would free one [B, S, hidden] per block; name it in \"regions\" to have it"));
  }

  const Options options_;
  std::vector<std::string> regions_;
  BlockChoice blocks_;
};

}  // namespace
}  // namespace drivetrain

DRIVETRAIN_PLUGIN(drivetrain::Recompute, "selective", drivetrain::Selective)
