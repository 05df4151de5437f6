// `drivetrain bench products`: the highest rate of matrix products that this machine reaches, over shapes and with the
// threads of one rank: what the TFLOPS of a training step can be held against instead of a data sheet's peak.
//
// Y [M, N] = A [M, K] B^T with B [N, K], as a layer's forward has it, by LibTorch's mm; 2 M N K operations. Each shape
// is computed once before it is timed.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rand.h>

#include <algorithm>
#include <charconv>

#include <drivetrain/toolkit/text.h>

#include "bench/dtype.h"
#include "bench/machine.h"
#include "bench/table.h"
#include "bench/timing.h"
#include "cli/commands.h"
#include "memory/cpu_allocator.h"

namespace drivetrain {
namespace {

struct SweptProduct {
  int64_t m = 0, n = 0, k = 0;
  double flops() const { return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k); }
  std::string text() const { return concat(m, "x", n, "x", k); }
};

// Squares, and the products of GPT-2 small and of Llama's 7B with 512 and 4096 rows.
constexpr const char* kForCpu =
    "256x256x256,512x512x512,1024x1024x1024,2048x2048x2048,512x2304x768,512x768x768,512x3072x768,512x768x3072,"
    "512x50304x768";
constexpr const char* kForGpu =
    "1024x1024x1024,2048x2048x2048,4096x4096x4096,8192x8192x8192,4096x12288x4096,4096x4096x4096,4096x22016x4096,"
    "4096x4096x11008,4096x32000x4096";

SweptProduct product_of(const std::string& text) {
  SweptProduct product;
  const std::vector<std::string> parts = cli::split(text, 'x');
  int64_t* const to[] = {&product.m, &product.n, &product.k};
  bool right = parts.size() == 3;
  for (size_t i = 0; right && i < 3; ++i) {
    const char* const end = parts[i].data() + parts[i].size();
    const auto [stop, failed] = std::from_chars(parts[i].data(), end, *to[i]);
    right = failed == std::errc() && stop == end && *to[i] >= 1 && *to[i] <= 1 << 20;
  }
  if (!right)
    throw fail(ErrorCode::config,
               "bench products: --shapes wants MxNxK of 1 to 1048576 each, such as 4096x4096x1024, got \"", text, "\"");
  return product;
}

std::vector<SweptProduct> products_of(const BenchArguments& arguments, const at::Device& device) {
  const std::string list = arguments.has("--shapes") ? arguments.text("--shapes") : device.is_cpu() ? kForCpu : kForGpu;
  std::vector<SweptProduct> products;
  for (const std::string& one : cli::split(list, ',')) products.push_back(product_of(one));
  if (products.empty()) throw fail(ErrorCode::config, "bench products: --shapes names none");
  return products;
}

TimedWork work_of(const SweptProduct& product, const at::TensorOptions& options) {
  const at::Tensor a = at::rand({product.m, product.k}, options), b = at::rand({product.n, product.k}, options);
  const at::Tensor y = at::empty({product.m, product.n}, options);
  return [=] {
    at::Tensor to = y;
    at::mm_out(to, a, b.t());
  };
}

// A shape at a time, so that only its own matrices are there: the least of the rounds is what is achievable.
Spread seconds_of_product(const SweptProduct& product, const at::TensorOptions& options, int64_t rounds) {
  const TimedWork work = work_of(product, options);
  return spread_of(take_turns(options.device(), {work}, rounds).front());
}

Value product_value(const SweptProduct& product, const Spread& seconds) {
  Value value = Value::object();
  value.set("m", product.m), value.set("n", product.n), value.set("k", product.k);
  value.set("seconds", seconds.to_value());
  value.set("tflops", product.flops() / seconds.min / 1e12);
  value.set("median_tflops", product.flops() / seconds.median / 1e12);
  return value;
}

}  // namespace

BenchReport bench_products(const BenchArguments& arguments) {
  const int64_t rounds = arguments.whole("--rounds");
  const BenchMachine machine = describe_machine();
  const at::Device device = open_bench_device(arguments);
  install_cpu_allocator();
  const at::NoGradGuard no_grad;
  const at::TensorOptions options = at::TensorOptions(bench_dtype(arguments)).device(device);
  BenchReport report = report_on("products", machine);
  TextTable table({"M x N x K", "least", "median", "TFLOPS", "of the highest"});
  struct Row {
    SweptProduct product;
    Spread seconds;
  };
  std::vector<Row> rows;
  for (const SweptProduct& product : products_of(arguments, device))
    rows.push_back({product, seconds_of_product(product, options, rounds)});
  const auto rate = [](const Row& row) { return row.product.flops() / row.seconds.min / 1e12; };
  const Row& best =
      *std::max_element(rows.begin(), rows.end(), [&](const Row& a, const Row& b) { return rate(a) < rate(b); });
  Value list = Value::array();
  for (const Row& row : rows) {
    table.row({row.product.text(), seconds_text(row.seconds.min), seconds_text(row.seconds.median),
               formatted("%.4f", rate(row)), formatted("%.1f %%", 100 * rate(row) / rate(best))});
    list.items().push_back(product_value(row.product, row.seconds));
  }
  report.json.set("device", device.str()), report.json.set("dtype", arguments.text("--dtype"));
  report.json.set("threads", static_cast<int64_t>(at::get_num_threads())), report.json.set("rounds", rounds);
  report.json.set("products", std::move(list));
  report.json.set("highest_tflops", rate(best)), report.json.set("highest_at", best.product.text());
  report.text += concat(table.text(), "highest rate: ", formatted("%.4f", rate(best)), " TFLOPS at ",
                        best.product.text(), " in ", arguments.text("--dtype"), ", by the least of ", rounds,
                        " rounds on ", at::get_num_threads(), " threads\n");
  return report;
}

}  // namespace drivetrain
