// Answers the model's wish for transformer blocks with hand-written ones, and says at the start how many.
#include <utility>
#include <vector>

#include <drivetrain/services.h>
#include <drivetrain/strategy.h>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/layers/decorated_layers.h>

#include "block.h"

namespace {

using namespace drivetrain;

// What the model asked for and got.
struct BlockCounts {
  int64_t taken = 0, whole = 0;  // whole: of those taken, MLPs that mlp_chunk does not cut
  int64_t without_gelu = 0;      // and those with products that gelu_fusion does not change
  struct Left {
    std::string block, reason;
  };
  std::vector<Left> left;
};

// The factory it found, with blocks of its own. Further plugins may decorate it: whoever changes layers without
// answering `block` gets the model's plain block by the default of LayerFactory.
class FusedLayers : public DecoratedLayers {
 public:
  FusedLayers(std::shared_ptr<LayerFactory> inner, std::shared_ptr<Attention> attention,
              const fused_block::BlockOptions& options, std::shared_ptr<BlockCounts> counts)
      : DecoratedLayers(std::move(inner)),
        attention_(std::move(attention)),
        options_(options),
        counts_(std::move(counts)) {}

  UnitPtr block(const BlockSpec& spec, LayerFactory& layers, const std::function<UnitPtr()>& plain) override {
    std::string reason;
    auto own = fused_block::make_block_layers(spec, layers, reason);
    if (!own) {
      counts_->left.push_back({spec.name, reason});
      return inner_->block(spec, layers, plain);
    }
    ++counts_->taken;
    fused_block::BlockOptions options = options_;
    if (options.mlp_chunk > 0 && !fused_block::may_be_cut(*own)) options.mlp_chunk = 0, ++counts_->whole;
    const auto block =
        std::make_shared<fused_block::Block>(spec, std::move(*own), attention_, positions_of(spec), options);
    counts_->without_gelu += !block->has_gelu(at::kCUDA, at::kBFloat16);
    return block;
  }

 private:
  // Blocks that turn alike share their tables.
  std::shared_ptr<ops::RotaryPositions> positions_of(const BlockSpec& spec) {
    if (!spec.rotary) return nullptr;
    for (const auto& known : positions_)
      if (known->frequencies() == spec.rotary_frequencies && known->scale() == spec.rotary_scale) return known;
    return positions_.emplace_back(std::make_shared<ops::RotaryPositions>(spec.rotary_frequencies, spec.rotary_scale));
  }

  const std::shared_ptr<Attention> attention_;
  const fused_block::BlockOptions options_;
  const std::shared_ptr<BlockCounts> counts_;
  std::vector<std::shared_ptr<ops::RotaryPositions>> positions_;  // of the blocks so far
};

class FusedBlock : public Strategy {
 public:
  using Options = fused_block::BlockOptions;
  static OptionTable options() {
    return table<Options>()
        .field("recompute_cheap", &Options::recompute_cheap,
               "computes norms and activations again in backward: a third less activation memory")
        .field("mlp_chunk", &Options::mlp_chunk,
               "positions of a sequence whose MLP is computed at a time, forward and backward, for long sequences; 0: "
               "all")
        .at_least(0)
        .field("gelu_fusion", &Options::gelu_fusion,
               "GELU (gelu_tanh) and its gradient in the epilogues of the MLP's products (cuBLASLt), on CUDA in 16 "
               "bits");
  }
  FusedBlock(const Options& options, const Services& services) : options_(options), services_(services) {}

  void plan(PlanContext& ctx) override {
    training_ = ctx.run().training;
    ctx.capturable();
    // Norms and activations are left to products that compute them in their casts; of an MLP in chunks not all.
    if (options_.mlp_chunk == 0) ctx.offer("products.gives_operands");
    gelu_here_ = ctx.run().device == "cuda" && ctx.run().compute_bytes == 2;
    if (options_.gelu_fusion && gelu_here_) ctx.offer("products.gelu_fusion");
    if (options_.gelu_fusion && !gelu_here_)
      ctx.no_effect("gelu_fusion",
                    concat("cuBLASLt has GELU in products of bfloat16 and float16 on CUDA; this run computes ", "in ",
                           ctx.run().compute_dtype, " on ", ctx.run().device));
    if (training_ && options_.mlp_chunk > 0)
      ctx.cost("the MLP's forward runs once more: with mlp_chunk nothing of it is kept for backward");
  }

  void build(Builder& builder) override {
    Options options = options_;
    options.misses_gelu = [this](const std::string& block, int64_t rows) { say_missing(block, rows); };
    builder.layers = std::make_shared<FusedLayers>(builder.layers, builder.attention(), options, counts_);
  }

  // The model is built.
  void attach(UnitList&) override {
    const auto left = static_cast<int64_t>(counts_->left.size()), all = counts_->taken + left;
    say(all == 0 ? "no block is left for it; another plugin answers them, or the model has none"
                 : concat("computes ", counts_->taken, " of ", all, " blocks"));
    if (options_.mlp_chunk > 0 && counts_->whole + left > 0)
      say(concat("mlp_chunk changes nothing in ", counts_->whole + left,
                 " blocks: those that are left to the model, and MLPs with adapters, whose dropout is drawn for all "
                 "positions"));
    if (options_.gelu_fusion && gelu_here_ && counts_->without_gelu + left > 0)
      say(concat("gelu_fusion changes nothing in ", counts_->without_gelu + left,
                 " blocks: those that are left to the model, with another activation than gelu_tanh, with widths that "
                 "are no multiples of 8, and with layers that another plugin computes (8 bits, adapters, tensor "
                 "parallelism)"));
    if (left == 0) return;
    const auto& first = counts_->left.front();
    say(concat("leaves ", first.block, left > 1 ? concat(" and ", left - 1, " more") : "",
               " to the model: ", first.reason));
  }

 private:
  void say(const std::string& line) const {
    // A sample on standard output stays what it is.
    services_.log.write(training_ ? LogLevel::info : LogLevel::debug, "strategy/fused_block: " + line);
  }
  // The first shape alone: texts that grow have another one each time.
  void say_missing(const std::string& block, int64_t rows) {
    if (!std::exchange(said_missing_, true))
      say(concat("cuBLASLt has no products with GELU for the ", rows, " rows of ", block,
                 " on this GPU; the MLP of such shapes is computed as without gelu_fusion"));
  }

  const Options options_;
  const Services& services_;
  const std::shared_ptr<BlockCounts> counts_ = std::make_shared<BlockCounts>();
  bool training_ = true, gelu_here_ = false, said_missing_ = false;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Strategy, "fused_block", FusedBlock)
