#include "scaling.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "blocks.h"

namespace drivetrain::fp8 {

// Of layers that were made twice (a fused block that is left to the model) one runs.
int64_t Scaling::add_layer(const std::string& name) {
  if (const auto found = std::find(names_.begin(), names_.end(), name); found != names_.end())
    return found - names_.begin();
  names_.push_back(name);
  places_.push_back(-1);
  return static_cast<int64_t>(names_.size()) - 1;
}

bool Scaling::has_layer(const std::string& name) const {
  return std::find(names_.begin(), names_.end(), name) != names_.end();
}

void Scaling::attach(const std::vector<std::string>& names, GroupPtr peers, GroupPtr parts, const at::Device& device) {
  for (const std::string& name : names) {
    const auto layer = std::find(names_.begin(), names_.end(), name) - names_.begin();
    places_.at(static_cast<size_t>(layer)) = static_cast<int64_t>(kept_.size());
    kept_.push_back(layer);
  }
  peers_ = std::move(peers), parts_ = std::move(parts);
  const auto places = static_cast<int64_t>(kept_.size());
  const at::TensorOptions options = at::TensorOptions(at::kFloat).device(device);
  used_ = at::zeros({places, kRoles}, options), seen_ = at::zeros({places, kRoles}, options);
  if (recipe_.delayed) history_ = at::zeros({places, kRoles, recipe_.amax_history_len}, options);
}

namespace {

bool several(const GroupPtr& group) { return group && group->size() > 1; }

// The largest of all ranks of the group, element by element.
at::Tensor largest_over(Group& group, const at::Tensor& mine) {
  at::Tensor all = group.allocate(group.size() * mine.numel(), at::kFloat);
  group.all_gather(all, mine.reshape({-1}))->wait();
  return at::amax(all.view({group.size(), -1}), 0).view_as(mine);
}

}  // namespace

// From the history, which a restart may have filled.
void Scaling::step_begin() {
  recording_ = true;
  weights_.assign(names_.size(), {});
  if (history_.defined() && !kept_.empty())
    used_.copy_(recipe_.most_recent ? history_.select(2, 0) : at::amax(history_, 2));
}

// A step with numbers that are not finite leaves no trace: its update is left out, and the scales stay.
void Scaling::step_end() {
  recording_ = false;
  weights_.clear();
  if (!history_.defined() || kept_.empty()) return;
  const at::Tensor amax = several(peers_) ? largest_over(*peers_, seen_) : seen_;
  const int64_t older = recipe_.amax_history_len - 1;
  if (older > 0) history_.narrow(2, 1, older).copy_(history_.narrow(2, 0, older).clone());
  history_.select(2, 0).copy_(at::where(at::isfinite(amax), amax, used_));
  seen_.zero_();
  remembers_ = true;
}

void Scaling::state(StateVisitor& visitor) {
  if (!history_.defined()) return;
  for (size_t place = 0; place < kept_.size(); ++place) {
    at::Tensor mine = history_.select(0, static_cast<int64_t>(place));
    visitor.tensor(names_[static_cast<size_t>(kept_[place])] + ".amax_history", mine,
                   Layout::whole(mine.sizes().vec()));
  }
}

// 1 for a tensor of zeros. NaN where the tensor is not finite, so that clamping hides nothing.
at::Tensor Scaling::scale_of(const at::Tensor& amax, at::ScalarType type) const {
  const at::Tensor scale = (largest(type) / std::exp2(recipe_.margin)) / amax;
  return at::where(amax > 0, scale.clamp_max(std::numeric_limits<float>::max()), at::ones_like(scale));
}

// What is remembered is that of all parts already.
at::Tensor Scaling::over_parts(const at::Tensor& amax) const {
  return several(parts_) && !remembers_ ? largest_over(*parts_, amax) : amax;
}

namespace {

// Of a layer's tensor, among those of all layers.
at::Tensor of(const at::Tensor& all, int64_t place, Role role) {
  return all.select(0, place).select(0, static_cast<int64_t>(role));
}

}  // namespace

// Where the cast that follows raises `seen`, a scale that is remembered needs no pass over x before.
Scaling::Scale Scaling::scale(int64_t layer, Role role, const Operand& x) const {
  const at::NoGradGuard off;
  const at::ScalarType type = type_of(role);
  const int64_t place = places_.at(static_cast<size_t>(layer));
  if (!history_.defined() || place < 0) {
    const at::Tensor amax = over_parts(absolute_maximum(x));
    return {scale_of(amax, type) + (amax - amax), type};
  }
  const bool cast_raises = recording_ && by_kernel(x);
  const at::Tensor used = of(used_, place, role);
  const at::Tensor amax = over_parts(absolute_maximum(x, cast_raises ? used : at::Tensor()));
  at::Tensor seen = of(seen_, place, role);
  if (recording_ && !cast_raises) at::maximum_out(seen, seen, amax);
  return {scale_of(at::where(used > 0, used, amax), type) + (amax - amax), type, cast_raises ? seen : at::Tensor()};
}

// For the backward pass, whose inputs and weights forward has seen in this step: their amax is recorded, and with a
// scale that is remembered x need not be read for it again. Where all that is remembered is zeros, this step's amax so
// far counts. x that is not finite has made the loss so in forward.
Scaling::Scale Scaling::scale_again(int64_t layer, Role role, const Operand& x) const {
  const int64_t place = places_.at(static_cast<size_t>(layer));
  if (role == Role::gradient || !recording_ || !remembers_ || place < 0) return scale(layer, role, x);
  const at::NoGradGuard off;
  const at::Tensor used = of(used_, place, role);
  return {scale_of(at::where(used > 0, used, of(seen_, place, role)), type_of(role)), type_of(role)};
}

namespace {

int64_t block_rows(Role role) { return role == Role::weight ? kBlock : 1; }

}  // namespace

Scaled Scaling::cast(int64_t layer, Role role, const Operand& given) const {
  const Operand x = castable(given, type_of(role));
  if (recipe_.blocks) return cast_blocks(x, block_rows(role));
  const Scale its = scale(layer, role, x);
  return fp8::cast(x, its.value, its.type, its.seen);
}

Scaled Scaling::cast_transposed(int64_t layer, Role role, const Operand& given) const {
  const Operand x = castable(given, type_of(role));
  if (recipe_.blocks) return cast_blocks_transposed(x, block_rows(role));
  const Scale its = scale_again(layer, role, x);
  return fp8::cast_transposed(x, its.value, its.type);
}

Both Scaling::cast_both(int64_t layer, Role role, const Operand& given) const {
  const Operand x = castable(given, type_of(role));
  if (recipe_.blocks) return cast_blocks_both(x, block_rows(role));
  const Scale its = scale(layer, role, x);
  return fp8::cast_both(x, its.value, its.type, its.seen);
}

const Both& Scaling::kept_weight(int64_t layer, const at::Tensor& w) {
  Both& kept = weights_.at(static_cast<size_t>(layer));
  if (!kept.rows.values.defined()) kept = cast_both(layer, Role::weight, w);
  return kept;
}

Scaled Scaling::weight(int64_t layer, const at::Tensor& w) {
  return keeps_weights() ? kept_weight(layer, w).rows : cast(layer, Role::weight, w);
}

Scaled Scaling::weight_transposed(int64_t layer, const at::Tensor& w) {
  return keeps_weights() ? kept_weight(layer, w).columns : cast_transposed(layer, Role::weight, w);
}

}  // namespace drivetrain::fp8
