// The plain experts and the grouped products beneath them, against dense loops over experts in float64; the same bits
// by any number of threads.
#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>

#include <drivetrain/error.h>
#include <drivetrain/random.h>
#include <drivetrain/toolkit/layers/grouped_product.h>
#include <drivetrain/toolkit/layers/mixture.h>
#include <drivetrain/toolkit/ops/ops.h>

namespace drivetrain::experts_test {
namespace {

using Counts = std::vector<int64_t>;

class ExpertsVisit : public StepContext {
 public:
  int64_t step() const override { return 1; }
  Mode mode() const override { return Mode::train; }
  const Batch& batch() const override { return batch_; }
  const Visit& visit() const override { return visit_; }
  std::span<const Visit> ahead() const override { return {}; }
  RandomKey random(std::string_view) const override { return {}; }
  at::Tensor add_loss(const std::string&, const at::Tensor&, double) override { return {}; }
  void metric(const std::string&, const at::Tensor&) override {}
  Batch batch_;
  Visit visit_;
};

at::Tensor numbers(at::IntArrayRef sizes, uint64_t seed) {
  at::Tensor t = at::empty(sizes, at::kDouble);
  for (int64_t i = 0; i < t.numel(); ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    t.mutable_data_ptr<double>()[i] = static_cast<double>(seed >> 40) / (1 << 24) * 2 - 1;
  }
  return t;
}
at::Tensor counts_of(const Counts& counts) { return at::tensor(counts, at::kLong); }

// Of what the layer and the loop compute.
struct Results {
  at::Tensor y, dx, fc, proj;
};

struct Case {
  Counts counts;
  int64_t rows = 0, hidden = 16, ffn = 8;
  std::string activation = "swiglu";
  at::ScalarType dtype = at::kDouble, gradients = at::kDouble;
  int64_t micro_batches = 1;
  bool parks = false;  // weight gradients wait for the end of backward

  int64_t experts() const { return static_cast<int64_t>(counts.size()); }
  int64_t width() const { return ops::is_gated(ops::activation_of(activation)) ? 2 * ffn : ffn; }
  // Operands as the layer gets them: of its type.
  at::Tensor operand(at::IntArrayRef sizes, uint64_t seed, double scale = 1) const {
    return (numbers(sizes, seed) * scale).to(dtype);
  }
  at::Tensor x(int64_t micro) const { return operand({rows, hidden}, uint64_t(10 + micro)); }
  at::Tensor dy(int64_t micro) const { return operand({rows, hidden}, uint64_t(20 + micro)); }
  at::Tensor fc() const { return operand({experts() * width(), hidden}, 1, 1 / std::sqrt(double(hidden))); }
  at::Tensor proj() const { return operand({experts() * hidden, ffn}, 2, 1 / std::sqrt(double(ffn))); }
};

Results by_loop(const Case& c) {
  Results all;
  const auto kind = ops::activation_of(c.activation);
  all.fc = at::zeros(c.fc().sizes(), at::kDouble), all.proj = at::zeros(c.proj().sizes(), at::kDouble);
  for (int64_t micro = 0; micro < c.micro_batches; ++micro) {
    all.y = at::zeros({c.rows, c.hidden}, at::kDouble), all.dx = at::zeros_like(all.y);
    int64_t first = 0;
    for (int64_t e = 0; e < c.experts(); ++e) {
      const int64_t rows = c.counts[size_t(e)];
      const auto part = [&](const at::Tensor& t) { return t.narrow(0, first, rows).to(at::kDouble); };
      const at::Tensor w = c.fc().narrow(0, e * c.width(), c.width()).to(at::kDouble);
      const at::Tensor v = c.proj().narrow(0, e * c.hidden, c.hidden).to(at::kDouble);
      const at::Tensor x = part(c.x(micro)), g = part(c.dy(micro)), h = at::mm(x, w.t());
      const at::Tensor a = ops::activation(kind, h, {});
      const at::Tensor dh = ops::activation_backward(kind, h, at::mm(g, v), nullptr);
      all.y.narrow(0, first, rows).copy_(at::mm(a, v.t()));
      all.dx.narrow(0, first, rows).copy_(at::mm(dh, w));
      all.fc.narrow(0, e * c.width(), c.width()).add_(at::mm(dh.t(), x));
      all.proj.narrow(0, e * c.hidden, c.hidden).add_(at::mm(g.t(), a));
      first += rows;
    }
  }
  return all;
}

struct Layered {
  explicit Layered(const Case& of) : c(of) {
    layer = make_plain_experts({"experts", c.experts(), c.hidden, c.ffn, c.activation});
    fc = layer->params()[0], proj = layer->params()[1];
    fc->tensor = c.fc().set_requires_grad(true), proj->tensor = c.proj().set_requires_grad(true);
    // What was there before is not a summand.
    for (const ParamPtr& p : {fc, proj})
      p->grad = at::full_like(p->tensor, std::numeric_limits<double>::quiet_NaN(), at::TensorOptions(c.gradients));
  }
  Results run(bool wants_dx = true) {
    Results found;
    for (int64_t micro = 0; micro < c.micro_batches; ++micro) {
      const auto work = std::make_shared<WeightWork>(c.parks ? &parked : nullptr);
      const CurrentWeightWork current(work);
      at::Tensor x = c.x(micro);
      x.set_requires_grad(wants_dx);
      const at::Tensor y = layer->forward(x, counts_of(c.counts), visit);
      if (y.requires_grad()) y.backward(c.dy(micro));
      EXPECT_EQ(parked.size(), c.parks ? 2u : 0u);
      if (c.parks) {
        EXPECT_EQ(fc->has_grad(), micro > 0);
      }
      for (const auto& part : parked) part();
      parked.clear();
      found = {y.detach(), x.grad(), fc->grad, proj->grad};
    }
    return found;
  }
  Case c;
  std::shared_ptr<Experts> layer;
  ParamPtr fc, proj;
  ExpertsVisit visit;
  WeightWork::Parked parked;
};

void expect_close(const at::Tensor& ours, const at::Tensor& theirs, double tolerance, const char* what) {
  ASSERT_EQ(ours.sizes(), theirs.sizes()) << what;
  if (theirs.numel() == 0) return;
  const double difference = (ours.to(at::kDouble) - theirs).abs().max().item<double>();
  EXPECT_LE(difference, tolerance * std::max(1.0, theirs.abs().max().item<double>())) << what;
}

void expect_as_the_loop(const Case& c, double tolerance) {
  SCOPED_TRACE(c.activation + ", " + std::to_string(c.rows) + " rows, " + c10::toString(c.dtype));
  Layered ours(c);
  const Results found = ours.run(), right = by_loop(c);
  expect_close(found.y, right.y, tolerance, "y");
  expect_close(found.dx, right.dx, tolerance, "dx");
  expect_close(found.fc, right.fc, tolerance, "fc");
  expect_close(found.proj, right.proj, tolerance, "proj");
}

const Counts kUneven = {5, 0, 1, 17, 0, 9, 0};

Case uneven(at::ScalarType dtype = at::kDouble, at::ScalarType gradients = at::kDouble) {
  Case c;
  c.counts = kUneven, c.rows = 32, c.dtype = dtype, c.gradients = gradients;
  return c;
}

TEST(Experts, uneven_counts_and_experts_without_rows) {
  for (const char* activation : {"swiglu", "geglu_tanh", "gelu", "relu"}) {
    Case c = uneven();
    c.activation = activation;
    expect_as_the_loop(c, 1e-13);
  }
}

TEST(Experts, rows_of_nobody_give_zeros) {
  Case c = uneven();
  c.rows = 40;
  expect_as_the_loop(c, 1e-13);
  Layered ours(c);
  EXPECT_EQ(ours.run().y.narrow(0, 32, 8).abs().sum().item<double>(), 0);
}

TEST(Experts, all_rows_of_one_expert) {
  Case c;
  c.counts = {0, 0, 1100, 0}, c.rows = 1100;  // more than one block of rows
  expect_as_the_loop(c, 1e-12);
}

TEST(Experts, results_wider_than_a_block) {
  Case c;
  c.counts = {3, 10}, c.rows = 13, c.hidden = 24, c.ffn = 1030;  // 2060 results of fc
  expect_as_the_loop(c, 1e-12);
  c.dtype = at::kBFloat16, c.gradients = at::kFloat;
  expect_as_the_loop(c, 0.02);
}

TEST(Experts, no_rows_at_all) {
  Case c;
  c.counts = {0, 0, 0};
  expect_as_the_loop(c, 0);  // gradients of zeros
  c.rows = 4;
  expect_as_the_loop(c, 0);
}

TEST(Experts, micro_batches_add_up) {
  for (const at::ScalarType gradients : {at::kFloat, at::kBFloat16}) {
    Case c = uneven(at::kBFloat16, gradients);
    c.micro_batches = 2;
    expect_as_the_loop(c, 0.02);
  }
  Case c = uneven();
  c.micro_batches = 3;
  expect_as_the_loop(c, 1e-13);
}

TEST(Experts, types_within_their_rounding) {
  expect_as_the_loop(uneven(at::kFloat, at::kFloat), 1e-5);
  expect_as_the_loop(uneven(at::kBFloat16, at::kBFloat16), 0.02);
  expect_as_the_loop(uneven(at::kHalf, at::kFloat), 0.003);
}

// A float32 slot gets the sums themselves, not their 16-bit neighbours.
TEST(Experts, weight_gradients_are_not_rounded_to_16_bits) {
  const at::Tensor dy = numbers({40, 6}, 1).to(at::kBFloat16), x = numbers({40, 5}, 2).to(at::kBFloat16);
  Param weight("w", Layout::whole({12, 5}), {});
  weight.grad = at::empty({12, 5}, at::kFloat);
  accumulate_grouped_weight_grad(weight, dy, x, RowGroups(counts_of({30, 10})));
  const auto product = [&](int64_t first, int64_t rows) {
    return at::mm(dy.narrow(0, first, rows).to(at::kDouble).t(), x.narrow(0, first, rows).to(at::kDouble));
  };
  expect_close(weight.grad, at::cat({product(0, 30), product(30, 10)}), 1e-6, "sums");
}

TEST(Experts, a_split_backward_computes_weight_gradients_later) {
  Case c = uneven();
  c.parks = true, c.micro_batches = 2;
  expect_as_the_loop(c, 1e-13);
}

TEST(Experts, frozen_weights_get_no_gradient) {
  const Results right = by_loop(uneven());
  for (const bool wants_dx : {true, false})
    for (const bool fc : {true, false})
      for (const bool proj : {true, false}) {
        Layered ours(uneven());
        ours.fc->trainable = fc, ours.proj->trainable = proj;
        ours.fc->tensor.set_requires_grad(fc), ours.proj->tensor.set_requires_grad(proj);
        const Results found = ours.run(wants_dx);
        EXPECT_EQ(ours.fc->has_grad(), fc);
        EXPECT_EQ(ours.proj->has_grad(), proj);
        if (fc) expect_close(found.fc, right.fc, 1e-13, "fc");
        if (proj) expect_close(found.proj, right.proj, 1e-13, "proj");
        if (wants_dx) expect_close(found.dx, right.dx, 1e-13, "dx");
      }
}

// Everything around the experts, too: the rows of 37 tokens, three choices each. `direct`: experts read the tokens.
Results mixed(at::ScalarType dtype, int threads, bool direct, int64_t micro_batches = 1) {
  const int before = at::get_num_threads();
  at::set_num_threads(threads);
  Case c;
  c.counts = Counts(6, 0), c.hidden = 1400, c.ffn = 96, c.dtype = dtype, c.gradients = at::kFloat;
  constexpr int64_t T = 37, K = 3;
  at::Tensor experts = at::empty({T, K}, at::kLong);
  for (int64_t i = 0; i < T * K; ++i)  // most by two of the experts, some by nobody
    experts.mutable_data_ptr<int64_t>()[i] = i % 11 == 0 ? -1 : (i / K) % 5 ? (i % K) * (i % 2 + 1) : 5 - i % K;
  Layered ours(c);
  const SortedRows rows = sort_by_expert(experts, c.experts());
  at::Tensor x = c.operand({T, c.hidden}, 5), weights = numbers({T, K}, 6).to(at::kFloat), y;
  x.set_requires_grad(true), weights.set_requires_grad(true);
  for (int64_t micro = 0; micro < micro_batches; ++micro) {
    if (direct)
      y = sum_of_experts(*ours.layer, c.experts(), x, {experts, weights}, ours.visit, [] {});
    else
      y = weighted_sum(ours.layer->forward(rows_of_tokens(x, rows), rows.counts_E, ours.visit), weights, rows);
    y.backward(c.operand({T, c.hidden}, 7));
  }
  at::set_num_threads(before);
  return {y.detach(), at::cat({x.grad().to(at::kFloat).view({-1}), weights.grad().view({-1})}), ours.fc->grad,
          ours.proj->grad};
}

// As the program sets it before MKL's first product (tools/drivetrain/library.cpp).
[[maybe_unused]] const int kBitsOfMkl = setenv("MKL_CBWR", "AUTO,STRICT", 0);

TEST(Experts, the_same_bits_by_any_number_of_threads) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16})
    for (const bool direct : {false, true}) {
      const Results one = mixed(dtype, 1, direct);
      for (const int threads : {2, 3}) {
        const Results more = mixed(dtype, threads, direct);
        EXPECT_TRUE(more.y.equal(one.y)) << threads << " threads, " << dtype;
        EXPECT_TRUE(more.dx.equal(one.dx)) << threads << " threads, " << dtype;
        EXPECT_TRUE(more.fc.equal(one.fc)) << threads << " threads, " << dtype;
        EXPECT_TRUE(more.proj.equal(one.proj)) << threads << " threads, " << dtype;
      }
    }
}

// dx has the gradients of the tokens, then those of the choices' weights.
TEST(Experts, reading_tokens_is_the_same_as_getting_their_rows) {
  for (const auto& [dtype, tolerance] : {std::pair{at::kDouble, 2e-6}, {at::kFloat, 1e-5}, {at::kBFloat16, 0.02}})
    for (const int64_t micro_batches : {1, 2}) {
      SCOPED_TRACE(c10::toString(dtype));
      const Results rows = mixed(dtype, 2, false, micro_batches), tokens = mixed(dtype, 2, true, micro_batches);
      expect_close(tokens.y, rows.y.to(at::kDouble), tolerance, "y");
      expect_close(tokens.dx, rows.dx.to(at::kDouble), tolerance, "dx and dw");
      expect_close(tokens.fc, rows.fc.to(at::kDouble), tolerance, "fc");
      expect_close(tokens.proj, rows.proj.to(at::kDouble), tolerance, "proj");
    }
}

TEST(Experts, counts_and_ids_that_cannot_be_are_refused) {
  try {
    (void)grouped_product(numbers({4, 3}, 1), numbers({6, 3}, 2), RowGroups(counts_of({3, 2})));
    ADD_FAILURE() << "no refusal";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("5 rows, but there are 4"), std::string::npos) << e.what();
  }
  try {
    (void)sort_by_expert(counts_of({0, 7}).view({1, 2}), 4);
    ADD_FAILURE() << "no refusal";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("chose expert 7 of 4"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace drivetrain::experts_test
