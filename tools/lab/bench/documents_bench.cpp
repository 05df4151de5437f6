#include "bench/documents_bench.h"

#include <ATen/ops/rand.h>

#include <cmath>
#include <random>

#include <drivetrain/toolkit/text.h>

#include "bench/table.h"

namespace drivetrain {
namespace {

constexpr double kSigma = 0.8;  // of the logarithm of a length

// Rows with their boundaries, or one document a row.
class Rows {
 public:
  Rows(const Attention& attention, int64_t rows, int64_t length, const HeadShape& shape, const at::Device& device,
       std::vector<int64_t> cu_seqlens)
      : attention_(attention) {
    const auto numbers = [&](int64_t heads) {
      return at::rand({rows, length, heads, shape.size}, at::TensorOptions(at::kFloat).device(device))
          .sub(0.5)
          .to(shape.dtype);
    };
    q_ = numbers(shape.heads), k_ = numbers(shape.groups), v_ = numbers(shape.groups), dout_ = numbers(shape.heads);
    args_.scale = 1 / std::sqrt(static_cast<double>(shape.size));
    args_.varlen.cu_seqlens = std::move(cu_seqlens);
  }
  void both() { gradients_ = attention_.backward(dout_, attention_.forward(q_, k_, v_, args_), args_); }

 private:
  const Attention& attention_;
  at::Tensor q_, k_, v_, dout_;
  AttentionArgs args_;
  Tensors gradients_;
};

}  // namespace

DocumentMix::DocumentMix(int64_t rows, int64_t length, int64_t mean) : rows(rows), length(length), cu_seqlens{0} {
  std::mt19937_64 bits(1);
  std::lognormal_distribution<double> lengths(std::log(static_cast<double>(mean)) - kSigma * kSigma / 2, kSigma);
  while (cu_seqlens.back() < rows * length) {
    const int64_t begin = cu_seqlens.back(), wanted = std::max<int64_t>(1, std::llround(lengths(bits)));
    cu_seqlens.push_back(std::min(begin + wanted, (begin / length + 1) * length));
  }
}

std::string DocumentMix::text() const {
  const auto count = static_cast<int64_t>(cu_seqlens.size()) - 1;
  return concat(count, " documents of ", rows * length / count, " positions on average in ", rows, " rows of ", length,
                ", beside ", count, " rows of ", length);
}

void bench_documents(BenchReport& report, const PluginHost& host, const DocumentMix& mix, const HeadShape& shape,
                     const at::Device& device, int64_t rounds) {
  TextTable table({"attention", "packed", "padded", "ratio", "least to most"});
  Value list = Value::array();
  std::string refusals;
  for (const std::string& name : host.registry.names(Attention::kKind)) {
    std::string refusal;
    const auto attention = host.make<Attention>(name, refusal);
    try {
      if (!attention) throw fail(ErrorCode::plugin, refusal);
      Rows packed(*attention, mix.rows, mix.length, shape, device, mix.cu_seqlens);
      Rows padded(*attention, static_cast<int64_t>(mix.cu_seqlens.size()) - 1, mix.length, shape, device, {});
      const auto seconds = take_turns(device, {[&] { packed.both(); }, [&] { padded.both(); }}, rounds);
      const Spread one = spread_of(seconds[0]), other = spread_of(seconds[1]),
                   ratio = spread_of(ratios(seconds[0], seconds[1]));
      table.row({name, seconds_text(one.median), seconds_text(other.median), formatted("%.3f", ratio.median),
                 concat(formatted("%.3f", ratio.min), " to ", formatted("%.3f", ratio.max))});
      Value row = Value::object();
      row.set("attention", name);
      row.set("packed_s", one.to_value()), row.set("padded_s", other.to_value()), row.set("ratio", ratio.to_value());
      list.items().push_back(std::move(row));
    } catch (const Error& e) {
      refusals += concat("attention/", name, " is left out: ", e.what(), "\n");
    }
  }
  report.json.set("documents", std::move(list));
  report.text +=
      concat(mix.text(), ", forward and backward; in turns, ", rounds, " rounds, medians\n", table.text(), refusals);
}

}  // namespace drivetrain
