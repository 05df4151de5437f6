#include <drivetrain/toolkit/recompute/recompute_blocks.h>

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <drivetrain/device.h>
#include <drivetrain/error.h>
#include <drivetrain/toolkit/copy_stream.h>
#include <drivetrain/toolkit/text.h>

namespace drivetrain {

int64_t BlockChoice::count(double fraction, int64_t blocks) {
  return std::llround(fraction * static_cast<double>(blocks));
}

namespace {
int64_t planned_blocks(const PlanContext& ctx) { return ctx.run().rank_layers.value_or(ctx.model().num_layers); }

// Of the chosen blocks of one micro-batch; 0 as long as the plan does not know.
double input_bytes(const PlanContext& ctx, int64_t blocks) {
  const RunFacts& run = ctx.run();
  return static_cast<double>(blocks * run.micro_batch_size.value_or(0) * run.rank_positions.value_or(0) *
                             ctx.model().hidden_size) *
         run.compute_bytes;
}

// Copies to page-locked memory of the host run beside the forward passes that follow; who computes waits for those
// back.
void report_copies(PlanContext& ctx, double bytes, bool pinned) {
  using Beside = HostTraffic::Beside;
  const RunFacts& run = ctx.run();
  const int64_t micro_batches = run.accumulation.value_or(1);
  const double of_step = bytes * static_cast<double>(micro_batches);
  ctx.host_memory(MemoryClass::activations, "inputs of blocks",
                  bytes * static_cast<double>(run.micro_batches_in_flight.value_or(1)));
  ctx.host_traffic(
      {"inputs of blocks to the host", of_step, micro_batches, pinned ? Beside::forward : Beside::nothing});
  ctx.host_traffic({"inputs of blocks from the host", of_step, micro_batches, Beside::nothing});
}
}  // namespace

double BlockChoice::plan(PlanContext& ctx) const {
  const int64_t all = planned_blocks(ctx), chosen = count(fraction_, all);
  if (all == 0) return fraction_;
  if (chosen == 0)
    ctx.no_effect("fraction", concat(fraction_, " of ", all, " blocks is none: all activations are kept"));
  return static_cast<double>(chosen) / static_cast<double>(all);
}

void BlockChoice::report_cost(PlanContext& ctx, const HostStash* stash) const {
  const int64_t all = planned_blocks(ctx), chosen = count(fraction_, all);
  if (all == 0) return ctx.cost("blocks run their forward twice");
  const double extra = forward_shares(ctx).blocks * static_cast<double>(chosen) / static_cast<double>(all);
  ctx.cost(concat("the forward of ", chosen, " of ", all,
                  " blocks runs twice: ", extra > 0 ? concat("about ", percent(extra)) : "up to a third",
                  " more work in a step", stash ? ", and their inputs go to the host and back" : "",
                  ". \"type\": \"none\" keeps all activations"));
  if (const double bytes = input_bytes(ctx, chosen); stash && bytes > 0) report_copies(ctx, bytes, stash->pinned());
}

void BlockChoice::choose(const UnitList& units) {
  std::vector<const Unit*> blocks;
  for (const UnitPtr& unit : units.units)
    if (unit->is_block()) blocks.push_back(unit.get());
  blocks_ = static_cast<int64_t>(blocks.size());
  blocks.resize(static_cast<size_t>(count(fraction_, blocks_)));
  names_.clear();
  regions_.emplace();
  for (const Unit* block : blocks) {
    names_.insert(block->name());
    const auto keeps = block->keeps();
    if (!keeps) regions_.reset();
    if (!keeps || !regions_) continue;
    for (const UnitKeeps::Region& region : keeps->regions) {
      bool& frees = (*regions_)[region.name];
      frees = frees || region.freed.any();
    }
  }
}

// Forward is a third of a step without recompute. The output layer's product is no block's.
ForwardShares forward_shares(const PlanContext& ctx) {
  const ModelFacts& model = ctx.model();
  const double all = model.flops_per_token(static_cast<double>(ctx.run().seq_length.value_or(0)));
  const double attention = all - model.flops_per_token_fixed;
  if (all <= 0) return {};
  const double head = 6.0 * static_cast<double>(model.vocab_size) * static_cast<double>(model.hidden_size);
  return {std::max(0.0, all - head) / all / 3, attention / all / 3};
}

std::string percent(double share) { return formatted(share < 0.0995 ? "%.1f %%" : "%.0f %%", 100 * share); }

// Free buffers by what they hold.
struct HostStash::Pool {
  using Key = std::pair<at::ScalarType, int64_t>;
  const bool pinned;
  std::map<Key, Tensors> free = {};
  CopyStream copies = {};

  at::Tensor take(at::ScalarType dtype, int64_t numel) {
    Tensors& list = free[{dtype, numel}];
    if (list.empty()) return host_memory(numel, dtype, pinned);
    at::Tensor buffer = std::move(list.back());
    list.pop_back();
    return buffer;
  }
  void give_back(at::Tensor buffer) {
    const Key key{buffer.scalar_type(), buffer.numel()};
    free[key].push_back(std::move(buffer));
  }
};

// All copies are enqueued on one stream, their own, so that a buffer may be given back while it is still read: who
// writes it next waits. Copies to the host run beside the forward passes that follow.
class HostStash::OnHost final : public Held {
 public:
  OnHost(std::shared_ptr<Pool> pool, const Tensors& tensors) : pool_(std::move(pool)) {
    for (const at::Tensor& t : tensors) waiting_.push_back(moved(t));
  }
  ~OnHost() override {
    for (Waiting& w : waiting_)
      if (w.host.defined()) pool_->give_back(std::move(w.host));
  }

  Tensors restore() override {
    Tensors tensors;
    for (Waiting& w : waiting_) {
      if (!w.host.defined()) {
        tensors.push_back(std::move(w.itself));
        continue;
      }
      at::Tensor t = at::empty(w.shape, w.options);
      pool_->copies.run(t.device(), [&] { t.copy_(w.host.view(w.shape), /*non_blocking=*/true); }).join();
      tensors.push_back(std::move(t));
      pool_->give_back(std::exchange(w.host, {}));
    }
    return tensors;
  }

 private:
  struct Waiting {
    at::Tensor itself, host;
    std::vector<int64_t> shape;
    at::TensorOptions options;
  };

  Waiting moved(const at::Tensor& t) const {
    if (!t.defined()) return {t, {}, {}, {}};
    Waiting w{{}, pool_->take(t.scalar_type(), t.numel()), t.sizes().vec(), t.options()};
    const at::Tensor flat = t.detach().contiguous().view({-1});
    pool_->copies.run(t.device(), [&] {
      w.host.copy_(flat, /*non_blocking=*/true);
      pool_->copies.reads(flat);
    });
    return w;
  }

  const std::shared_ptr<Pool> pool_;
  std::vector<Waiting> waiting_;
};

HostStash::HostStash(bool pinned) : pool_(std::make_shared<Pool>(Pool{.pinned = pinned, .free = {}, .copies = {}})) {}

bool HostStash::pinned() const { return pool_->pinned; }

std::unique_ptr<Held> HostStash::hold(const Tensors& tensors) const { return std::make_unique<OnHost>(pool_, tensors); }

}  // namespace drivetrain
