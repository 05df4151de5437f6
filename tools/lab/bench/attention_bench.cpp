// `drivetrain bench attention`: forward and backward of every installed attention, in turns with LibTorch's
// scaled_dot_product_attention and its autograd.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include <drivetrain/attention.h>
#include <drivetrain/toolkit/text.h>

#include "bench/documents_bench.h"
#include "bench/dtype.h"
#include "bench/machine.h"
#include "bench/plugin_host.h"
#include "bench/table.h"
#include "bench/timing.h"
#include "memory/cpu_allocator.h"

namespace drivetrain {
namespace {

struct AttentionCase {
  int64_t batch, heads, groups, head_size, length;
  bool causal;
  at::ScalarType dtype;
  at::Tensor q, k, v, dout;  // [B, S, H or G, D]

  AttentionCase(const BenchArguments& a, const at::Device& device)
      : batch(a.whole("--batch")),
        heads(a.whole("--heads")),
        groups(a.whole("--groups", heads)),
        head_size(a.whole("--head-size")),
        length(a.whole("--seq")),
        causal(!a.has("--full")),
        dtype(bench_dtype(a)) {
    if (heads % groups != 0)
      throw fail(ErrorCode::config, "bench attention: --groups ", groups, " does not divide --heads ", heads);
    const auto numbers = [&](int64_t h) {
      return at::rand({batch, length, h, head_size}, at::TensorOptions(at::kFloat).device(device)).sub(0.5).to(dtype);
    };
    q = numbers(heads), k = numbers(groups), v = numbers(groups), dout = numbers(heads);
  }

  std::string text() const {
    return concat("B ", batch, ", S ", length, ", H ", heads, groups == heads ? "" : concat(" over ", groups), ", D ",
                  head_size, causal ? ", causal, " : ", full, ", c10::toString(dtype));
  }
  double flops() const {  // forward and 2.5 of it backward, halved if causal
    return 3.5 * 4 * static_cast<double>(batch * heads) * static_cast<double>(length) *
           static_cast<double>(length * head_size) / (causal ? 2 : 1);
  }
};

class OurAttention {
 public:
  OurAttention(const Attention& attention, const AttentionCase& c) : attention_(attention), case_(c) {
    args_.scale = 1 / std::sqrt(static_cast<double>(c.head_size)), args_.causal = c.causal;
  }
  void forward() { state_ = attention_.forward(case_.q, case_.k, case_.v, args_); }
  void backward() { grads_ = attention_.backward(case_.dout, state_, args_); }
  void both() { forward(), backward(); }

 private:
  const Attention& attention_;
  const AttentionCase& case_;
  AttentionArgs args_;
  AttentionState state_;
  Tensors grads_;
};

class TheirAttention {
 public:
  explicit TheirAttention(const AttentionCase& c) : causal_(c.causal), grouped_(c.heads != c.groups) {
    const auto leaf = [](const at::Tensor& x) {
      return x.transpose(1, 2).contiguous().detach().set_requires_grad(true);
    };
    q_ = leaf(c.q), k_ = leaf(c.k), v_ = leaf(c.v), dout_ = c.dout.transpose(1, 2).contiguous();
  }
  void forward() {
    const at::AutoGradMode recording(true);
    out_ = at::scaled_dot_product_attention(q_, k_, v_, {}, 0.0, causal_, std::nullopt, grouped_);
  }
  void backward() { grads_ = torch::autograd::grad({out_}, {q_, k_, v_}, {dout_}); }
  void both() { forward(), backward(); }

 private:
  bool causal_, grouped_;
  at::Tensor q_, k_, v_, dout_, out_;
  Tensors grads_;
};

struct Timed {
  Spread forward, both, their_forward, their_both, ratio;
};

Timed time_attention(const Attention& attention, const AttentionCase& c, const at::Device& device, int64_t rounds) {
  OurAttention ours(attention, c);
  TheirAttention theirs(c);
  const auto seconds = take_turns(
      device, {[&] { ours.forward(); }, [&] { theirs.forward(); }, [&] { ours.both(); }, [&] { theirs.both(); }},
      rounds);
  return {spread_of(seconds[0]), spread_of(seconds[2]), spread_of(seconds[1]), spread_of(seconds[3]),
          spread_of(ratios(seconds[2], seconds[3]))};
}

Value value_of(const std::string& name, const Timed& t, const AttentionCase& c) {
  Value one = Value::object();
  one.set("attention", name);
  one.set("forward_s", t.forward.to_value());
  one.set("forward_backward_s", t.both.to_value());
  one.set("libtorch_forward_s", t.their_forward.to_value());
  one.set("libtorch_forward_backward_s", t.their_both.to_value());
  one.set("ratio", t.ratio.to_value());
  one.set("tflops", c.flops() / t.both.median / 1e12);
  return one;
}

}  // namespace

BenchReport bench_attention(const BenchArguments& arguments) {
  const int64_t rounds = arguments.whole("--rounds");
  const BenchMachine machine = describe_machine();
  const at::Device device = open_bench_device(arguments);
  install_cpu_allocator();
  const AttentionCase c(arguments, device);
  BenchReport report = report_on("attention", machine);
  const PluginHost host(arguments, device);
  TextTable table({"attention", "forward", "and backward", "LibTorch forward", "and backward", "ratio of both",
                   "least to most", "TFLOPS"});
  Value list = Value::array();
  std::string refusals;
  for (const std::string& name : host.registry.names(Attention::kKind)) {
    std::string refusal;
    const auto attention = host.make<Attention>(name, refusal);
    try {
      if (!attention) throw fail(ErrorCode::plugin, refusal);
      const Timed t = time_attention(*attention, c, device, rounds);
      table.row({name, seconds_text(t.forward.median), seconds_text(t.both.median),
                 seconds_text(t.their_forward.median), seconds_text(t.their_both.median),
                 formatted("%.3f", t.ratio.median),
                 concat(formatted("%.3f", t.ratio.min), " to ", formatted("%.3f", t.ratio.max)),
                 formatted("%.4f", c.flops() / t.both.median / 1e12)});
      list.items().push_back(value_of(name, t, c));
    } catch (const Error& e) {
      refusals += concat("attention/", name, " is left out: ", e.what(), "\n");
    }
  }
  report.json.set("device", device.str());
  report.json.set("shape", c.text());
  report.json.set("attentions", std::move(list));
  report.text += concat(c.text(), "; in turns, ", rounds, " rounds, medians\n", table.text(), refusals);
  if (!arguments.has("--documents")) return report;
  const int64_t mean = arguments.whole("--documents");
  if (mean < 1 || mean > c.length)
    throw fail(ErrorCode::config, "bench attention: --documents ", mean, " is not a length of 1 to --seq ", c.length);
  report.text += "\n";
  bench_documents(report, host, DocumentMix(c.batch, c.length, mean), {c.heads, c.groups, c.head_size, c.dtype}, device,
                  rounds);
  return report;
}

}  // namespace drivetrain
