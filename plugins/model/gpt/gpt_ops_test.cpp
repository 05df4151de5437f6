// Activations and rotary embedding against the recorded float64 cases and the formulas of long-context scaling.
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/gelu.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include <drivetrain/safetensors.h>

#include <drivetrain/testkit/attention/suite.h>
#include "activations.h"
#include "rotary.h"
#include "support/plugin_under_test.h"
#include "test_model.h"

namespace drivetrain::gpt {
namespace {

// A step whose batch has these columns.
struct Columns : test::TestContext {
  explicit Columns(const std::vector<RowRange>& positions) { batch_.positions = positions; }
};

// The cases of one operator in golden/ops: run(case name, its description, its tensors).
struct Golden {
  explicit Golden(const std::string& op)
      : ops(read_json_file(DRIVETRAIN_GOLDEN_DIR "/ops/cases.json")),
        rtol(ops.find("rtol_float32")->as_double()),
        cases(*ops.find("ops")->find(op)->find("cases")),
        file(SafetensorsFile::open(DRIVETRAIN_GOLDEN_DIR "/ops/" + op + ".safetensors")) {}

  at::Tensor input(const std::string& name) const { return file.tensor(name).to(at::kFloat).set_requires_grad(true); }

  void expect(const at::Tensor& found, const Value::Member& c, const std::string& name) const {
    const at::Tensor wanted = file.tensor(c.key + "." + name);
    const double atol = c.value.find("atol_float32")->find(name)->as_double();
    const at::Tensor excess = found.detach().to(at::kDouble).sub(wanted).abs().sub(wanted.abs().mul(rtol));
    EXPECT_LE(excess.max().item<double>(), atol) << c.key << " " << name;
  }

  const Value ops;
  const double rtol;
  const Value& cases;
  const SafetensorsFile file;
};

void backward(const at::Tensor& y, const at::Tensor& dy) { y.backward(dy.to(at::kFloat)); }

TEST(Activations, gelus_match_the_recorded_cases) {
  for (const auto& [op, name] : {std::pair{"gelu_tanh", "gelu_tanh"}, {"gelu_erf", "gelu"}}) {
    const Golden golden(op);
    for (const auto& c : golden.cases.members()) {
      SCOPED_TRACE(op);
      const at::Tensor x = golden.input(c.key + ".x"), y = activate(name, x);
      golden.expect(y, c, "y");
      backward(y, golden.file.tensor(c.key + ".dy"));
      golden.expect(x.grad(), c, "dx");
    }
  }
}

TEST(Activations, swiglu_matches_the_recorded_cases) {
  const Golden golden("swiglu");
  for (const auto& c : golden.cases.members()) {
    const at::Tensor gate = golden.input(c.key + ".gate"), up = golden.input(c.key + ".up");
    const at::Tensor y = activate("swiglu", at::cat({gate, up}, -1));
    golden.expect(y, c, "y");
    backward(y, golden.file.tensor(c.key + ".dy"));
    golden.expect(gate.grad(), c, "dgate");
    golden.expect(up.grad(), c, "dup");
  }
}

TEST(Rotary, matches_the_recorded_cases_for_queries_and_keys) {
  const Golden golden("rope");
  for (const auto& c : golden.cases.members()) {
    const at::Tensor x = golden.input(c.key + ".x"), dy = golden.file.tensor(c.key + ".dy").to(at::kFloat);
    const int64_t B = x.size(0), S = x.size(1), H = x.size(2), D = x.size(3);
    RotaryScaling scaling;
    scaling.base = c.value.find("theta")->as_double();
    Rotary rotary(rotary_angles(scaling, D, 0));
    // As many key as query heads: queries and keys get the case's values, values something else.
    const at::Tensor v = (x.detach() * 3).set_requires_grad(true);
    const auto flat = [&](const at::Tensor& t) { return t.reshape({B, S, H * D}); };
    const auto [q, k, out_v] = rotary.apply(at::cat({flat(x), flat(x), flat(v)}, -1), H, H,
                                            Columns({{c.value.find("first_position")->as_int(), S}}));
    golden.expect(q, c, "y");
    golden.expect(k, c, "y");
    EXPECT_TRUE(at::equal(out_v, v));
    at::Tensor loss = (q * dy).sum() + (out_v * dy).sum();
    loss.backward();
    golden.expect(x.grad(), c, "dx");
    EXPECT_TRUE(at::equal(v.grad(), dy));
  }
}

TEST(Rotary, scores_depend_on_the_distance_of_positions_only) {
  Rotary rotary(rotary_angles({}, 8, 0));
  const at::Tensor one = test::normal_numbers({1, 1, 3 * 8}, 1).expand({1, 12, 24}).contiguous();
  const auto [q, k, v] = rotary.apply(one, 1, 1, Columns({{0, 12}}));
  const auto score = [&](int64_t i, int64_t j) { return (q[0][i] * k[0][j]).sum().item<double>(); };
  for (int64_t i = 0; i + 5 < 12; ++i) EXPECT_NEAR(score(i + 5, i), score(5, 0), 1e-12);
  EXPECT_NE(score(5, 0), score(6, 0));
}

// Slices as ranks of a context-parallel run have them: two of them, in any order, of a longer sequence.
TEST(Rotary, ranges_of_positions_turn_as_their_slices_of_the_whole) {
  Rotary rotary(rotary_angles({}, 8, 0));
  const at::Tensor x = test::normal_numbers({2, 12, (2 + 2 * 1) * 8}, 3).set_requires_grad(true);
  const auto slice = [](const at::Tensor& t, const std::vector<RowRange>& ranges) {
    Tensors parts;
    for (const RowRange& range : ranges) parts.push_back(t.narrow(1, range.first, range.count));
    return at::cat(parts, 1);
  };
  const auto gradient = [&](const at::Tensor& turned) {
    x.mutable_grad().reset();
    turned.pow(2).mul(3).sum().backward();
    return x.grad().clone();
  };
  const std::vector<std::vector<RowRange>> lists = {
      {{3, 4}}, {{0, 3}, {9, 3}}, {{6, 2}, {1, 1}, {4, 2}}, {{0, 3}, {9, 3}}};
  for (const std::vector<RowRange>& ranges : lists) {
    const auto whole = rotary.apply(x, 2, 1, Columns({{0, 12}})),
               part = rotary.apply(slice(x, ranges), 2, 1, Columns(ranges));
    EXPECT_TRUE(at::equal(part.q, slice(whole.q, ranges)));
    EXPECT_TRUE(at::equal(part.k, slice(whole.k, ranges)));
    EXPECT_TRUE(at::equal(part.v, slice(whole.v, ranges)));
    EXPECT_TRUE(at::equal(gradient(part.q), gradient(slice(whole.q, ranges))));
  }
  EXPECT_EQ(test::error_of([&] {
              rotary.apply(x, 2, 1, Columns({{0, 3}, {9, 3}}));
            }),
            "model/gpt: 6 positions for q, k and v of shape [2, 12, 32]");
}

TEST(Rotary, a_part_of_each_head_turns_as_a_head_of_that_size_and_the_rest_passes) {
  Rotary rotary(rotary_angles({}, 6, 0));
  const at::Tensor x = test::normal_numbers({2, 9, 4, 10}, 4).set_requires_grad(true);
  const at::Tensor y = rotary.turn(x, Columns({{0, 9}})),
                   head = rotary.turn(x.narrow(3, 0, 6).contiguous(), Columns({{0, 9}}));
  EXPECT_TRUE(at::equal(y.narrow(3, 0, 6), head));
  EXPECT_TRUE(at::equal(y.narrow(3, 6, 4), x.narrow(3, 6, 4)));
  // The backward of a turn is the turn back.
  y.backward(y.detach());
  EXPECT_TRUE(at::allclose(x.grad(), x, 1e-12, 1e-12));
}

// By its paper: pairs that turn more than beta_fast times within the original context stay, those that turn less than
// beta_slow times are stretched; cosine and sine grow by 0.1 ln(factor) + 1.
TEST(Rotary, yarn_keeps_fast_pairs_and_stretches_slow_ones) {
  RotaryScaling scaling{10000, "yarn", 8};
  scaling.original_positions = 4096;
  const RotaryAngles scaled = rotary_angles(scaling, 128, 0), plain = rotary_angles({10000}, 128, 0);
  EXPECT_NEAR(scaled.scale, 0.1 * std::log(8.) + 1, 1e-15);
  size_t kept = 0, stretched = 0;
  for (size_t i = 0; i < 64; ++i) {
    const double turns = 4096 * plain.frequencies[i] / (2 * std::numbers::pi),
                 ratio = scaled.frequencies[i] / plain.frequencies[i];
    EXPECT_TRUE(ratio <= 1 && ratio >= 1. / 8 - 1e-12) << i;
    if (turns > 40) kept += ratio == 1;
    if (turns < 0.8) stretched += std::abs(ratio - 1. / 8) < 1e-12;
    EXPECT_TRUE((turns <= 40 || ratio == 1) && (turns >= 0.8 || std::abs(ratio - 1. / 8) < 1e-12)) << i;
  }
  EXPECT_TRUE(kept > 5 && stretched > 5);
}

TEST(Rotary, longrope_goes_by_the_length_at_hand) {
  RotaryScaling scaling{10000, "longrope", 4};
  scaling.short_factor = {1, 2}, scaling.long_factor = {3, 5}, scaling.original_positions = 16;
  const auto plain = rotary_angles({10000}, 4, 0).frequencies;
  for (const auto& [length, factors] : {std::pair{int64_t{16}, scaling.short_factor}, {17, scaling.long_factor}}) {
    const RotaryAngles angles = rotary_angles(scaling, 4, length);
    for (size_t i = 0; i < 2; ++i) EXPECT_DOUBLE_EQ(angles.frequencies[i], plain[i] / factors[i]) << length;
    EXPECT_NEAR(angles.scale, std::sqrt(1 + std::log(4.) / std::log(16.)), 1e-15);
  }
}

TEST(Rotary, sixteen_bit_activations_are_turned_in_float32) {
  Rotary rotary(rotary_angles({}, 8, 0));
  const at::Tensor x = test::normal_numbers({2, 9, (4 + 2 * 2) * 8}, 2).to(at::kBFloat16);
  const auto wide = rotary.apply(x.to(at::kFloat), 4, 2, Columns({{0, 9}}));
  const auto narrow = rotary.apply(x, 4, 2, Columns({{0, 9}}));
  EXPECT_TRUE(at::equal(narrow.q, wide.q.to(at::kBFloat16)));
  EXPECT_TRUE(at::equal(narrow.k, wide.k.to(at::kBFloat16)));
  EXPECT_TRUE(at::equal(narrow.v, wide.v.to(at::kBFloat16)));
}

// Llama 3.1's rule in its own words: by wavelength.
TEST(Rotary, llama3_scaling_follows_wavelengths) {
  RotaryScaling scaling{500000, "llama3", 8, 1, 4};
  scaling.original_positions = 8192;
  const auto scaled = rotary_angles(scaling, 128, 0).frequencies, plain = rotary_angles({500000}, 128, 0).frequencies;
  for (size_t i = 0; i < plain.size(); ++i) {
    const double wavelength = 2 * std::numbers::pi / plain[i];
    double wanted = plain[i];
    if (wavelength > 8192 / 1.) {
      wanted = plain[i] / 8;
    } else if (wavelength >= 8192 / 4.) {
      const double smooth = (8192 / wavelength - 1) / (4. - 1);
      wanted = (1 - smooth) * plain[i] / 8 + smooth * plain[i];
    }
    EXPECT_NEAR(scaled[i], wanted, 1e-15 * plain[i] + 1e-18) << i;
  }
}

}  // namespace
}  // namespace drivetrain::gpt
