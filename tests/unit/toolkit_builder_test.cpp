// Builder::attention is a handle: layers that copied it before others wrapped the attention call the wrapped one.
#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones_like.h>

#include <drivetrain/error.h>
#include <drivetrain/mesh.h>
#include <drivetrain/strategy.h>
#include <drivetrain/toolkit/layers/attend.h>

namespace drivetrain::test {
namespace {

// out = factor * what is inside gives for q. Declares `factor` bytes of temporaries beside those of the attention
// inside.
class Times : public Attention {
 public:
  explicit Times(double factor, std::shared_ptr<Attention> inner = nullptr) : factor_(factor), inner_(inner) {}
  AttentionAbilities abilities() const override { return {}; }
  AttentionState forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const AttentionArgs& args) const override {
    return {q, k, v, (inner_ ? inner_->forward(q, k, v, args).out : q) * factor_, {}, {}};
  }
  Tensors backward(const at::Tensor& dout, const AttentionState& state, const AttentionArgs& args) const override {
    const at::Tensor dq = inner_ ? inner_->backward(dout, state, args)[0] : dout;
    return {dq * factor_, at::ones_like(state.k), at::ones_like(state.v)};
  }
  AttentionMemory memory(const AttentionShape& shape) const override {
    AttentionMemory memory = inner_ ? inner_->memory(shape) : Attention::memory(shape);
    memory.forward.add(factor_);
    return memory;
  }

 private:
  const double factor_;
  const std::shared_ptr<Attention> inner_;
};

const Mesh kAlone({}, 0, 1, nullptr);
const ModelFacts kFacts;

at::Tensor one(double value) { return at::full({1, 1, 1, 1}, value, at::kDouble); }

double out_of(const Attention& attention, double q) {
  return attention.forward(one(q), one(1), one(1), {}).out.item<double>();
}

// What every author would write: the attention's pointer, copied when the strategy builds.
class CopiesEarly : public Strategy {
 public:
  void build(Builder& builder) override { attention = builder.attention(); }
  std::shared_ptr<Attention> attention;
};

class Wraps : public Strategy {
 public:
  explicit Wraps(double factor) : factor_(factor) {}
  void build(Builder& builder) override {
    builder.wrap_attention(
        [&](std::shared_ptr<Attention> inner) { return std::make_shared<Times>(factor_, std::move(inner)); });
  }

 private:
  const double factor_;
};

TEST(BuilderAttention, copied_early_is_the_one_with_everything_around_it) {
  Builder builder(nullptr, std::make_shared<Times>(2), kAlone, kFacts);
  CopiesEarly layers;
  Wraps inner(3), outer(5);
  layers.build(builder), inner.build(builder), outer.build(builder);
  const std::shared_ptr<Attention> outermost = builder.finish_attention();
  EXPECT_EQ(out_of(*layers.attention, 1), 30);
  EXPECT_EQ(out_of(*outermost, 1), 30);
  EXPECT_EQ(out_of(*builder.attention(), 7), 210);
}

TEST(BuilderAttention, declares_the_memory_of_everything_around_it) {
  Builder builder(nullptr, std::make_shared<Times>(2), kAlone, kFacts);
  const auto early = builder.attention();
  Wraps(3).build(builder);
  const AttentionShape shape{1, 8, 8, 4, 2, 16};
  EXPECT_THROW(early->memory(shape), Error) << "it may still be wrapped";
  builder.finish_attention();
  EXPECT_EQ(early->memory(shape).forward.bytes(), shape.query_bytes() + 2 + 3);
  EXPECT_EQ(early->memory(shape).kept.bytes(), 2 * shape.query_bytes() + 2 * shape.key_bytes() + shape.lse_bytes());
}

TEST(BuilderAttention, does_not_compute_while_it_may_still_be_wrapped) {
  Builder builder(nullptr, std::make_shared<Times>(2), kAlone, kFacts);
  const auto early = builder.attention();
  EXPECT_THROW(out_of(*early, 1), Error);
  builder.finish_attention();
  EXPECT_EQ(out_of(*early, 1), 2);
  Wraps late(3);
  EXPECT_THROW(late.build(builder), Error) << "layers would not see it";
}

TEST(BuilderAttention, refuses_nothing_in_place_of_an_attention) {
  Builder builder(nullptr, std::make_shared<Times>(2), kAlone, kFacts);
  EXPECT_THROW(builder.wrap_attention([](const auto&) { return nullptr; }), Error);
}

TEST(Attend, keeps_the_attention_until_its_backward_is_done) {
  auto attention = std::make_shared<Times>(2);
  const std::weak_ptr<Attention> watched = attention;
  const at::Tensor q = one(1).set_requires_grad(true);
  {
    at::Tensor out = attend(attention, q, one(1), one(1), {});
    attention.reset();
    ASSERT_FALSE(watched.expired()) << "its backward is still to come";
    out.backward();
  }
  EXPECT_EQ(q.grad().item<double>(), 2);
  EXPECT_TRUE(watched.expired());
}

}  // namespace
}  // namespace drivetrain::test
