// The operations between products (ops.h) in float64 against LibTorch's autograd of their formulas, and in float32,
// where kernels compute them, against float64.
#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros_like.h>

#include <drivetrain/random.h>

#include <drivetrain/toolkit/ops/ops.h>

namespace drivetrain {
namespace {

at::Tensor drawn(std::vector<int64_t> shape, const char* name, double std = 1) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  at::Tensor flat = at::empty({count}, at::TensorOptions(at::kFloat));
  fill_normal(flat, 3, name, 0, std);
  return flat.view(shape).to(at::kDouble);
}
at::Tensor leaf(const at::Tensor& x) { return x.detach().clone().set_requires_grad(true); }

std::unique_ptr<Param> param_of(const at::Tensor& value, at::ScalarType dtype) {
  auto param = std::make_unique<Param>("p", Layout::whole(value.sizes().vec()), InitRule::ones());
  param->tensor = value.to(dtype), param->grad = at::zeros_like(param->tensor);
  return param;
}

void expect_close(const at::Tensor& found, const at::Tensor& wanted, at::ScalarType dtype, const std::string& what) {
  ASSERT_EQ(found.sizes(), wanted.sizes()) << what;
  const double close = dtype == at::kDouble ? 1e-12 : 2e-5;
  const double off = (found.to(at::kDouble) - wanted).abs().max().item<double>();
  EXPECT_LE(off, close * wanted.abs().max().item<double>()) << what << ", " << c10::toString(dtype);
}

constexpr at::ScalarType kTypes[] = {at::kDouble, at::kFloat};

at::Tensor norm_formula(const at::Tensor& x, const ops::NormArgs& args, const at::Tensor& weight,
                        const at::Tensor& bias) {
  const at::Tensor s = args.rms ? x : x - x.mean(-1, true);
  at::Tensor y = s * ((s * s).mean(-1, true) + args.epsilon).rsqrt();
  if (weight.defined()) y = y * (weight + args.offset);
  return bias.defined() ? y + bias : y;
}

// Heads of [B, S, H, C] share a weight.
TEST(ToolkitOps, norms_with_offsets_and_without_gains_are_their_formula) {
  for (int kind = 0; kind < 16; ++kind) {
    const ops::NormArgs args{1e-3, (kind & 1) != 0, (kind & 2) != 0 ? 1.0 : 0.0};
    const at::Tensor x = leaf(drawn({2, 3, 4, 8}, "x")), dy = drawn({2, 3, 4, 8}, "dy"), none;
    const at::Tensor weight = (kind & 4) != 0 ? leaf(drawn({8}, "w")) : none,
                     bias = (kind & 8) != 0 ? leaf(drawn({8}, "b")) : none;
    const at::Tensor wanted = norm_formula(x, args, weight, bias);
    wanted.backward(dy);
    for (const at::ScalarType dtype : kTypes) {
      SCOPED_TRACE(kind);
      const auto w = weight.defined() ? param_of(weight.detach(), dtype) : nullptr,
                 b = bias.defined() ? param_of(bias.detach(), dtype) : nullptr;
      ops::Normed kept = ops::norm(x.detach().to(dtype), {}, w ? w->tensor : none, b ? b->tensor : none, args);
      expect_close(kept.y, wanted.detach(), dtype, "y");
      expect_close(ops::norm_again(kept, w ? w->tensor : none, b ? b->tensor : none, args), wanted.detach(), dtype,
                   "again");
      kept.y.reset();
      expect_close(ops::norm_backward(dy.to(dtype), {}, kept, w.get(), b.get(), args), x.grad(), dtype, "dx");
      if (w) expect_close(w->grad, weight.grad(), dtype, "dweight");
      if (b) expect_close(b->grad, bias.grad(), dtype, "dbias");
    }
  }
}

at::Tensor function_of(const std::string& name, const at::Tensor& x) {
  if (name == "gelu" || name == "geglu") return at::gelu(x);
  if (name == "gelu_tanh" || name == "geglu_tanh") return at::gelu(x, "tanh");
  return name == "relu" || name == "reglu" ? x.clamp_min(0) : at::silu(x);
}

TEST(ToolkitOps, activations_are_their_formula) {
  for (const std::string name : {"gelu_tanh", "gelu", "silu", "relu", "swiglu", "geglu", "geglu_tanh", "reglu"}) {
    const ops::Activation kind = ops::activation_of(name);
    const bool gated = name.find("glu") != std::string::npos;
    ASSERT_EQ(ops::is_gated(kind), gated) << name;
    const at::Tensor x = leaf(drawn({5, 12}, "x", 3)), bias = leaf(drawn({12}, "b"));
    const at::Tensor in = x + bias;
    const at::Tensor wanted =
        gated ? function_of(name, in.narrow(1, 0, 6)) * in.narrow(1, 6, 6) : function_of(name, in);
    const at::Tensor dy = drawn(wanted.sizes().vec(), "dy");
    wanted.backward(dy);
    for (const at::ScalarType dtype : kTypes) {
      const auto b = param_of(bias.detach(), dtype);
      const at::Tensor given = x.detach().to(dtype);
      expect_close(ops::activation(kind, given, b->tensor), wanted.detach(), dtype, name);
      expect_close(ops::activation_backward(kind, given, dy.to(dtype), b.get()), x.grad(), dtype, name + " dx");
      expect_close(b->grad, bias.grad(), dtype, name + " dbias");
    }
  }
}

at::Tensor turned(const at::Tensor& x, const ops::RotaryTable& table) {
  const int64_t n = table.cos.size(1);
  const at::Tensor cos = table.cos.unsqueeze(1), sin = table.sin.unsqueeze(1), a = x.narrow(3, 0, n),
                   b = x.narrow(3, n, n);
  return at::cat({a * cos - b * sin, b * cos + a * sin, x.narrow(3, 2 * n, x.size(3) - 2 * n)}, 3);
}

// H 4, G 2, C 8; of each head alone, or of all together; all of a head turns, or a part.
TEST(ToolkitOps, normed_and_turned_heads_are_their_formula) {
  for (const bool together : {false, true})
    for (const std::vector<double>& frequencies : {std::vector<double>{1, 0.3, 0.1, 0.03}, {1, 0.1}}) {
      const int64_t B = 2, S = 5, H = 4, G = 2, C = 8;
      const at::Tensor qkv = leaf(drawn({B, S, (H + 2 * G) * C}, "qkv")), bias = leaf(drawn({(H + 2 * G) * C}, "b"));
      const at::Tensor wq = leaf(drawn({together ? H * C : C}, "wq")), wk = leaf(drawn({together ? G * C : C}, "wk"));
      const at::Tensor like = at::empty({0}, at::TensorOptions(at::kDouble));
      const ops::RotaryTable table = ops::rotary_table(frequencies, 0, S, like, 1.25);
      const ops::NormArgs args{1e-3, true, 1};
      const auto part = [&](int64_t first, int64_t heads) { return (qkv + bias).narrow(2, first * C, heads * C); };
      const auto normed = [&](const at::Tensor& x, const at::Tensor& w, int64_t heads) {
        const at::Tensor y = together ? norm_formula(x, args, w, {}).reshape({B, S, heads, C})
                                      : norm_formula(x.reshape({B, S, heads, C}), args, w, {});
        return turned(y, table);
      };
      const at::Tensor q = normed(part(0, H), wq, H), k = normed(part(H, G), wk, G),
                       v = part(H + G, G).reshape({B, S, G, C});
      const at::Tensor dq = drawn({B, S, H, C}, "dq"), dk = drawn({B, S, G, C}, "dk"), dv = drawn({B, S, G, C}, "dv");
      ((q * dq).sum() + (k * dk).sum() + (v * dv).sum()).backward();
      for (const at::ScalarType dtype : kTypes) {
        const auto b = param_of(bias.detach(), dtype), pq = param_of(wq.detach(), dtype),
                   pk = param_of(wk.detach(), dtype);
        const ops::QkNorm norm{pq.get(), pk.get(), 1e-3, 1};
        const at::Tensor given = qkv.detach().to(dtype);
        const ops::RotaryTable own = ops::rotary_table(frequencies, 0, S, given, 1.25);
        const ops::Heads h = ops::split_heads(given, b->tensor, own, H, G, norm);
        expect_close(h.q, q.detach(), dtype, "q");
        expect_close(h.k, k.detach(), dtype, "k");
        expect_close(h.v, v.detach(), dtype, "v");
        const at::Tensor found =
            ops::split_heads_backward({dq.to(dtype), dk.to(dtype), dv.to(dtype)}, given, own, b.get(), norm);
        expect_close(found, qkv.grad(), dtype, "dqkv");
        expect_close(pq->grad, wq.grad(), dtype, "q's weight");
        expect_close(pk->grad, wk.grad(), dtype, "k's weight");
        expect_close(b->grad, bias.grad(), dtype, "bias");
      }
    }
}

TEST(ToolkitOps, the_rotation_alone_is_that_of_the_split) {
  for (const at::ScalarType dtype : kTypes) {
    const at::Tensor x = drawn({2, 5, 3, 10}, "x"), given = x.to(dtype);
    const ops::RotaryTable table = ops::rotary_table({1, 0.3, 0.1}, 0, 5, given, 0.8),
                           exact = {table.cos.to(at::kDouble), table.sin.to(at::kDouble)};
    const at::Tensor in = leaf(x), dy = drawn({2, 5, 3, 10}, "dy"), wanted = turned(in, exact);
    wanted.backward(dy);
    expect_close(ops::rotate(given, table), wanted.detach(), dtype, "y");
    expect_close(ops::rotate_backward(dy.to(dtype), table), in.grad(), dtype, "dx");
  }
}

TEST(ToolkitOps, scaled_and_capped_logits_have_their_loss_and_gradient) {
  const at::Tensor labels = at::empty({6}, at::TensorOptions(at::kLong));
  for (int64_t i = 0; i < 6; ++i) labels.mutable_data_ptr<int64_t>()[i] = i == 2 ? -100 : (i * 7) % 19;
  for (const ops::LogitArgs& args : {ops::LogitArgs{0.25, 0}, {1, 3}, {0.5, 30}}) {
    const at::Tensor z = leaf(drawn({6, 19}, "z", 4));
    const at::Tensor each = -at::log_softmax(ops::logits_of(z, args), 1).gather(1, labels.clamp_min(0).unsqueeze(1));
    const at::Tensor wanted = (each * labels.ge(0).unsqueeze(1).to(at::kDouble)).sum();
    (wanted * 0.5).backward();
    for (const at::ScalarType dtype : kTypes) {
      at::Tensor logits = z.detach().to(dtype).clone();
      expect_close(ops::cross_entropy_(logits, labels, true, 0.5, args), wanted.detach(), dtype, "loss");
      expect_close(logits, z.grad(), dtype, "dz");
    }
  }
}

}  // namespace
}  // namespace drivetrain
