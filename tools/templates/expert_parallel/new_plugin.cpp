// Splits experts over ranks: rows go to the rank that has their expert, which computes with those of one source after
// the other, and come back. What is sent and how many elements each rank gets is known from the counts alone.
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <drivetrain/toolkit/expert_sharing.h>
#include <drivetrain/toolkit/units/differentiable.h>

namespace {

using namespace drivetrain;

// Rows [sum of `sent`, D] in blocks for each rank, to those that come from each rank. A function with a gradient: that
// travels the other way. `after`: tensors whose gradients come only behind it, whether there are rows or not.
at::Tensor travel(const at::Tensor& rows, const Tensors& after, const GroupPtr& group, const at::Tensor& sent,
                  const at::Tensor& received) {
  const auto go = [group](const at::Tensor& x, const at::Tensor& from, const at::Tensor& to) {
    const auto elements = [&x](const at::Tensor& counts) {
      const at::Tensor all = counts.mul(x.size(1)).contiguous();
      return std::vector<int64_t>(all.const_data_ptr<int64_t>(), all.const_data_ptr<int64_t>() + all.numel());
    };
    const at::Tensor out = at::empty({to.sum().item<int64_t>(), x.size(1)}, x.options());
    group->all_to_all(out, x.contiguous(), elements(to), elements(from))->wait();
    return out;
  };
  Tensors inputs = {rows};
  inputs.insert(inputs.end(), after.begin(), after.end());
  return differentiable(
      inputs, [&](const Tensors& in) { return Tensors{go(in[0], sent, received)}; },
      [=, D = rows.size(1), options = rows.options(), many = inputs.size()](const Tensors& dy) {
        Tensors gradients(many);
        const at::Tensor d = dy[0].defined() ? dy[0] : at::zeros({received.sum().item<int64_t>(), D}, options);
        gradients[0] = go(d, received, sent);
        return gradients;
      })[0];
}

class SplitExperts : public Experts {
 public:
  SplitExperts(std::shared_ptr<Experts> inner, std::shared_ptr<ExpertRanks> ranks)
      : inner_(std::move(inner)), ranks_(std::move(ranks)) {}
  std::vector<ParamPtr> params() const override { return inner_->params(); }

  at::Tensor forward(const at::Tensor& x, const at::Tensor& counts, StepContext& ctx) override {
    const at::Tensor come = at::empty_like(counts);
    ranks_->group->all_to_all(come, counts.contiguous())->wait();
    const at::Tensor here = come.view({ranks_->size, -1}), received = here.to(at::kCPU).sum(1),
                     sent = counts.to(at::kCPU).view({ranks_->size, -1}).sum(1);
    const int64_t used = sent.sum().item<int64_t>();  // the rows behind are nobody's
    Tensors weights, parts;
    for (const ParamPtr& param : params()) weights.push_back(param->tensor);
    const at::Tensor rows = travel(x.narrow(0, 0, used), weights, ranks_->group, sent, received);
    int64_t first = 0;
    for (int64_t source = 0; source < ranks_->size; ++source) {
      const int64_t count = received[source].item<int64_t>();
      parts.push_back(inner_->forward(rows.narrow(0, first, count), here[source], ctx)), first += count;
    }
    const at::Tensor y = travel(at::cat(parts), {rows}, ranks_->group, received, sent);
    return used == x.size(0) ? y : at::cat({y, at::zeros({x.size(0) - used, x.size(1)}, x.options())});
  }

 private:
  const std::shared_ptr<Experts> inner_;
  const std::shared_ptr<ExpertRanks> ranks_;
};

class NewPlugin : public ExpertSharing {
 public:
  struct Options {
    int64_t size = 1;
  };
  static OptionTable options() {
    return table<Options>().field("size", &Options::size, "ranks that share the experts; 1: off").at_least(1);
  }
  NewPlugin(const Options& options, const Services& services) : ExpertSharing("new_plugin", options.size, services) {}

 protected:
  std::shared_ptr<Experts> share(std::shared_ptr<Experts> own) const override {
    return std::make_shared<SplitExperts>(std::move(own), ranks_);
  }
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::ExpertParallel, "new_plugin", NewPlugin)
