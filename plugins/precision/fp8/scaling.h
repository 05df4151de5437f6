// Which scale a tensor is cast with: one number per tensor and layer, or one per block.
//
// Source: NVIDIA's Transformer Engine, recipes DelayedScaling and Float8CurrentScaling. The scale makes the largest
// absolute value (amax) fill the range of the type, 2^margin left free. Float8CurrentScaling takes the amax of the
// tensor at hand. DelayedScaling takes that of the last `amax_history_len` steps, the same for all micro-batches of a
// step; in a step without any, as the first one is, it takes the tensor's own.
//
// Float8BlockScaling: weights have a scale for each 128 x 128 numbers, other operands for each 128 of a row along which
// the product sums (DeepSeek-AI 2024, "DeepSeek-V3 technical report", section 3.3.2; powers of two as in Transformer
// Engine). Each product casts by itself, and nothing is remembered.
//
// All of it is on the device and the host reads nothing, so that steps may be recorded. Thread: as layers.
#pragma once

#include <drivetrain/mesh.h>
#include <drivetrain/state.h>

#include <memory>
#include <string>
#include <vector>

#include "cast.h"

namespace drivetrain::fp8 {

struct Recipe {
  bool delayed = true, most_recent = false;
  bool blocks = false;  // scales of blocks, from the tensor at hand
  at::ScalarType forward = at::kFloat8_e4m3fn, backward = at::kFloat8_e5m2;  // blocks: e4m3 both
  int64_t amax_history_len = 1024;
  double margin = 0;
  bool wgrad = true;          // in 8 bits
  bool keep_weights = false;  // a weight is cast once in a step
};

enum class Role : int { input, weight, gradient };
constexpr int64_t kRoles = 3;

// The tensors of all layers of a rank.
class Scaling {
 public:
  explicit Scaling(const Recipe& recipe) : recipe_(recipe) {}
  const Recipe& recipe() const { return recipe_; }

  // A layer's place in what is kept. Before `attach`.
  int64_t add_layer(const std::string& name);
  bool has_layer(const std::string& name) const;
  // Keeps what `names` need, in their order; other layers are another stage's and do not run. `peers`: the ranks that
  // have the same layers or parts of them. `parts`: those of them that share each tensor (tensor parallelism): they
  // call everything below together and in the same order.
  void attach(const std::vector<std::string>& names, GroupPtr peers, GroupPtr parts, const at::Device& device);

  void step_begin();
  // Collective over the peers.
  void step_end();
  void state(StateVisitor& visitor);

  // x in 8 bits. Within a training step its amax is recorded; as often as one likes, it is a maximum. Where x's own
  // amax is the scale, it is that of all parts. x: [rows, columns], or what computes it.
  Scaled cast(int64_t layer, Role role, const Operand& x) const;
  Scaled cast_transposed(int64_t layer, Role role, const Operand& x) const;
  Both cast_both(int64_t layer, Role role, const Operand& x) const;
  // A weight, as cast() and cast_transposed() make it. With Recipe::keep_weights both are made when a training step
  // first asks for one of them, and are kept to its end: a weight's values change between steps alone.
  Scaled weight(int64_t layer, const at::Tensor& w);
  Scaled weight_transposed(int64_t layer, const at::Tensor& w);

 private:
  struct Scale {
    at::Tensor value;  // float32 scalar
    at::ScalarType type;
    at::Tensor seen = {};  // what the cast raises
  };
  at::ScalarType type_of(Role role) const {
    return role == Role::gradient && !recipe_.blocks ? recipe_.backward : recipe_.forward;
  }
  Scale scale(int64_t layer, Role role, const Operand& x) const;
  Scale scale_again(int64_t layer, Role role, const Operand& x) const;
  const Both& kept_weight(int64_t layer, const at::Tensor& w);
  bool keeps_weights() const { return recipe_.keep_weights && recording_; }
  at::Tensor scale_of(const at::Tensor& amax, at::ScalarType type) const;
  at::Tensor over_parts(const at::Tensor& amax) const;

  const Recipe recipe_;
  std::vector<std::string> names_;  // of all layers
  std::vector<int64_t> places_;     // by layer, in the tensors below; -1: not this rank's
  std::vector<int64_t> kept_;       // the layer of each place
  std::vector<Both> weights_;       // of this step, by layer, where they are kept
  GroupPtr peers_, parts_;
  bool recording_ = false;
  bool remembers_ = false;  // there is a history: parts have one scale without asking each other
  at::Tensor history_;      // float32 [places, kRoles, amax_history_len], newest first
  at::Tensor used_;         // float32 [places, kRoles]: the amax that this step's scales follow from; 0: none yet
  at::Tensor seen_;         // float32 [places, kRoles]: the amax of this step so far
};
using ScalingPtr = std::shared_ptr<Scaling>;

}  // namespace drivetrain::fp8
