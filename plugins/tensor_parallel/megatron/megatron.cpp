#include "megatron.h"

#include <drivetrain/error.h>

namespace drivetrain::megatron {

std::vector<RowRange> even_share(const std::vector<RowRange>& positions, int64_t ranks, int64_t index) {
  int64_t count = 0;
  for (const RowRange& range : positions) count += range.count;
  if (count % ranks != 0)
    throw fail(ErrorCode::config, "tensor_parallel/megatron: sequence_parallel shares ", count, " positions over ",
               ranks, " ranks, and they do not divide. Use sequences of a multiple of ", ranks,
               ", or turn sequence_parallel off");
  return part_of(positions, ranks, index);
}

namespace {

class Megatron : public TensorParallel {
 public:
  using Options = MegatronOptions;
  static OptionTable options() {
    return table<Options>()
        .field("size", &Options::size, "ranks that share every layer; 1 or 0: off")
        .alias("autotp_size")
        .alias("tensor_model_parallel_size")
        .at_least(0)
        .field("sequence_parallel", &Options::sequence_parallel,
               "what lies between the cut layers is cut by positions: less activation memory, the same traffic")
        .field("keep_gathered", &Options::keep_gathered,
               "under sequence_parallel: keeps gathered inputs until backward instead of gathering them again")
        .field("make_vocab_size_divisible_by", &Options::make_vocab_size_divisible_by,
               "rows of the vocabulary per rank are a multiple of it; padding, if size is over 1")
        .at_least(1);
  }
  Megatron(const Options& options, const Services& services) : options_(options), services_(services) {}

  void plan(PlanContext& ctx) override {
    cuts_positions_ = cuts_positions(options_, ctx.run());
    megatron::plan(options_, ctx);
  }

  void build(Builder& builder) override {
    if (options_.ranks() == 1) return;
    const int64_t ranks = options_.ranks(), index = builder.mesh.index(kAxis);
    exchange_ = std::make_shared<Exchange>(ranks, index, cuts_positions_);
    const Cut cut{exchange_, options_.keep_gathered, options_.make_vocab_size_divisible_by};
    builder.layers = cut_layers(builder.layers, builder.attention(), cut);
    if (cuts_positions_)
      builder.activation_cuts.emplace_back(
          [=](const auto& positions, const auto&) { return even_share(positions, ranks, index); });
  }

  void attach(UnitList&) override {
    if (exchange_) exchange_->attach(services_.mesh->group(kAxis));
  }

 private:
  const Options options_;
  const Services& services_;
  std::shared_ptr<Exchange> exchange_;
  bool cuts_positions_ = false;
};

}  // namespace
}  // namespace drivetrain::megatron

DRIVETRAIN_PLUGIN(drivetrain::TensorParallel, "megatron", drivetrain::megatron::Megatron)
