#include <drivetrain/strategy.h>

#include <utility>

#include <drivetrain/error.h>

namespace drivetrain {

// Calls whatever attention is the outermost one in the end. Layers hold this one, however early they were made.
class Builder::LateAttention final : public Attention {
 public:
  explicit LateAttention(std::shared_ptr<Attention> chosen) : outermost_(std::move(chosen)) {}

  AttentionAbilities abilities() const override { return there().abilities(); }
  AttentionState forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const AttentionArgs& args) const override {
    return ready().forward(q, k, v, args);
  }
  Tensors backward(const at::Tensor& dout, const AttentionState& state, const AttentionArgs& args) const override {
    return ready().backward(dout, state, args);
  }
  AttentionMemory memory(const AttentionShape& shape) const override { return ready().memory(shape); }

  void wrap(const AttentionWrap& wrap) {
    if (finished_)
      throw fail(ErrorCode::plugin,
                 "wrap_attention after `build`: layers call the attention that was there by then. Call it in `build`");
    std::shared_ptr<Attention> outer = wrap(outermost_);
    if (!outer) throw fail(ErrorCode::plugin, "wrap_attention: wanted an attention, found null");
    outermost_ = std::move(outer);
  }
  std::shared_ptr<Attention> finish() {
    finished_ = true;
    return outermost_;
  }

 private:
  const Attention& there() const {
    if (!outermost_)
      throw fail(ErrorCode::internal, "a layer asks for attention, and this run has no attention plugin");
    return *outermost_;
  }
  const Attention& ready() const {
    if (!finished_)
      throw fail(ErrorCode::internal,
                 "attention is called during `build`, when strategies may still put others around it");
    return there();
  }

  std::shared_ptr<Attention> outermost_;
  bool finished_ = false;
};

Builder::Builder(std::shared_ptr<LayerFactory> layers, std::shared_ptr<Attention> attention, const Mesh& mesh,
                 const ModelFacts& facts)
    : layers(std::move(layers)),
      mesh(mesh),
      facts(facts),
      attention_(std::make_shared<LateAttention>(std::move(attention))) {}
Builder::~Builder() = default;

std::shared_ptr<Attention> Builder::attention() const { return attention_; }
void Builder::wrap_attention(const AttentionWrap& wrap) { attention_->wrap(wrap); }
std::shared_ptr<Attention> Builder::finish_attention() { return attention_->finish(); }

Strategy::~Strategy() = default;

}  // namespace drivetrain
