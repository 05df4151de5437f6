// `drivetrain bench hardware`: what the machine at hand gives, as a file that `drivetrain plan --hardware` reads.
//
// All ranks measure at the same time, as they would train: they share the memory's bandwidth and the processor's clock.
// Alone it becomes `launch -n N --bench hardware`; with -n 1 there are no links to measure, and memory stands for them.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <drivetrain/attention.h>
#include <drivetrain/communicator.h>
#include <drivetrain/device.h>
#include <drivetrain/toolkit/layers/linear.h>
#include <drivetrain/toolkit/text.h>

#include "bench/block_rates.h"
#include "bench/collective_case.h"
#include "bench/machine.h"
#include "bench/memory_rates.h"
#include "bench/product_fit.h"
#include "bench/rank_alone.h"
#include "contract/device_runtime.h"
#include "predict/hardware.h"

namespace drivetrain {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
// Small operations that a block's forward or backward is made of, for the host's part of a visit.
constexpr double kOperationsOfVisit = 40;

// Of products and attention in a training run: on GPUs those are of 16 bits.
at::ScalarType trained_type(const at::Device& device) { return device.is_cpu() ? at::kFloat : at::kBFloat16; }

constexpr double kBusySeconds = 0.3;  // of a GPU, before it is measured

std::vector<MeasuredProduct> measure_products(const at::Device& device, at::ScalarType type) {
  std::vector<MeasuredProduct> list;
  // A GPU is given more tokens at a time, and wider models.
  const double more_rows = device.is_cpu() ? 1 : 64, wider = device.is_cpu() ? 1 : 8;
  for (const double rows : {64.0, 256.0, 1024.0})
    for (const auto& [out, in] :
         {std::pair{128.0, 128.0}, {384.0, 384.0}, {1024.0, 256.0}, {768.0, 768.0}, {1024.0, 1024.0}}) {
      MeasuredProduct shape = {rows * more_rows, out * wider, in * wider, 0};
      keep_busy(device, type, kBusySeconds);
      shape.rate = product_rate(device, {"", type}, shape);
      list.push_back(shape);
    }
  return list;
}

constexpr int64_t kPositions = 1024;  // of all rows together on a processor

// On a GPU of as many rows and heads as keep it busy at any length, and heads of the usual size there.
double attention_rate(const Attention& attention, const at::Device& device, int64_t seq) {
  const int64_t rows = device.is_cpu() ? kPositions / seq : 16, heads = device.is_cpu() ? 8 : 16,
                size = device.is_cpu() ? 64 : 128;
  const auto numbers = [&] {
    return at::rand({rows, seq, heads, size}, at::TensorOptions(at::kFloat).device(device))
        .sub(0.5)
        .to(trained_type(device));
  };
  const at::Tensor q = numbers(), k = numbers(), v = numbers(), dout = numbers();
  AttentionArgs args;
  args.scale = 1 / std::sqrt(static_cast<double>(size)), args.causal = true;
  keep_busy(device, trained_type(device), kBusySeconds);
  const double seconds = typical_seconds(device, [&] {
    AttentionState state = attention.forward(q, k, v, args);
    attention.backward(dout, state, args);
  });
  return 3.5 * 2 * static_cast<double>(rows * heads * size) * static_cast<double>(seq * seq) / seconds;
}

// What a run gets whose config names none.
std::string default_name(const RankAlone& rank, const std::string& kind) {
  Problems problems;
  const auto selections = select_plugins(Value::object(), {{kind, KindRule::exactly_one}}, rank.registry().known(),
                                         rank.device_name(), problems);
  problems.throw_if_any();
  return selections.front().name;
}

template <class Kind>
std::shared_ptr<Kind> make_default(const RankAlone& rank) {
  const std::string name = default_name(rank, Kind::kKind);
  return rank.registry().create<Kind>(name, rank.registry().options(Kind::kKind, name).defaults().get(),
                                      rank.services());
}

// What a rank waits in a short call for itself and for others, which do not come at the same time after `products`
// products, and may be asleep then. The mean of many calls and of all ranks: whoever is late does not wait.
double waiting_after_work(const at::Device& device, Group& group, int64_t products, int64_t calls) {
  constexpr int64_t kSize = 1024;
  const at::TensorOptions options = at::TensorOptions(at::kFloat).device(device);
  const at::Tensor x = at::rand({kSize, kSize}, options), message = at::zeros({kSize}, options);
  const auto call = [&] { group.all_reduce(message)->wait(); };
  call();
  double waiting = 0;
  for (int64_t i = 0; i < calls; ++i) {
    for (int64_t j = 0; j < products; ++j) product(x, x);
    waiting += seconds_of(device, call);
  }
  at::Tensor sum = at::full({1}, waiting, options);
  group.all_reduce(sum)->wait();
  return sum.item<double>() / static_cast<double>(group.size() * calls);
}

LinkRates measure_link(const RankAlone& rank, double memory_gb_per_s) {
  LinkRates link;
  link.share = 1;
  if (rank.environment().world_size == 1) {
    link.gb_per_s = memory_gb_per_s / 2;
    return link;
  }
  const auto communicator = make_default<Communicator>(rank);
  std::vector<int64_t> ranks;
  for (int64_t r = 0; r < rank.environment().world_size; ++r) ranks.push_back(r);
  const GroupPtr group = communicator->make_group(ranks, "bench");
  const auto seconds_of_call = [&](int64_t bytes, int calls) {
    CollectiveCase one("all_reduce", BufferKind::private_, bytes, group, rank.device());
    one.check();
    double best = 1e9;
    for (int round = 0; round < 5; ++round) {
      group->barrier();
      best = std::min(best, seconds_of(rank.device(), [&] {
                              for (int i = 0; i < calls; ++i) one.call();
                            }) / calls);
    }
    return best;
  };
  const int64_t large = 16 << 20, n = rank.environment().world_size;
  link.gb_per_s = bus_factor("all_reduce", n) * static_cast<double>(large) / seconds_of_call(large, 3) / 1e9;
  if (!rank.device().is_cpu()) {  // which sends while its host goes on
    link.latency_us = seconds_of_call(4096, 200) / static_cast<double>(2 * (n - 1)) * 1e6;
    return link;
  }
  link.latency_us = waiting_after_work(rank.device(), *group, 1, 100) / static_cast<double>(2 * (n - 1)) * 1e6;
  link.rank_latency_us = waiting_after_work(rank.device(), *group, 10, 10) / static_cast<double>(n) * 1e6;
  return link;
}

// Of a device with memory of its own; pinned, to the device and back.
LinkRates measure_pcie(const at::Device& device) {
  constexpr int64_t kLarge = 64 << 20;
  const at::Tensor here = host_memory(kLarge, at::kByte, /*pinned=*/true),
                   there = at::empty({kLarge}, at::TensorOptions(at::kByte).device(device));
  const auto seconds_of_copies = [&](int64_t bytes) {
    at::Tensor to_device = there.narrow(0, 0, bytes), to_host = here.narrow(0, 0, bytes);
    return typical_seconds(device,
                           [=] {
                             to_device.copy_(to_host, /*non_blocking=*/true);
                             to_host.copy_(to_device, /*non_blocking=*/true);
                           }) /
           2;
  };
  return {.gb_per_s = static_cast<double>(kLarge) / seconds_of_copies(kLarge) / 1e9,
          .share = 1,
          .latency_us = seconds_of_copies(1) * 1e6};
}

double memory_of_rank(const RankAlone& rank) {
  if (DeviceRuntime* const device = device_runtime())
    return static_cast<double>(device->facts(static_cast<int>(rank.environment().local_rank)).memory_bytes) / kGiB;
  const double host = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  return host / static_cast<double>(rank.environment().local_size) / kGiB;
}

void measure_types(Hardware& hardware, const RankAlone& rank) {
  const at::Device device = rank.device();
  const at::ScalarType type = trained_type(device);
  keep_busy(device, type, 2);
  const std::vector<MeasuredProduct> products = measure_products(device, type);
  const ProductFit fit = fit_products(products);
  hardware.products = fit.rates;
  hardware.peak_tflops = Value::object();
  const int arch = device.is_cpu() ? 0 : device_runtime()->facts(static_cast<int>(rank.environment().local_rank)).arch;
  for (const ProductType& other : product_types(device, arch)) {
    keep_busy(device, type, kBusySeconds);
    const double times = other.type == type ? 1 : product_rate(device, other, products.back()) / products.back().rate;
    hardware.peak_tflops.set(other.name, times * fit.peak / 1e12);
  }
  const int64_t few = device.is_cpu() ? 128 : 512, many = 8 * few;
  const double small = attention_rate(*make_default<Attention>(rank), device, few),
               large = attention_rate(*make_default<Attention>(rank), device, many);  // each may choose for its length
  // rate(s) = r / (1 + h / s) through both points.
  const double h =
      std::max(0.0, (large / small - 1) / (1.0 / static_cast<double>(few) - large / small / static_cast<double>(many)));
  hardware.attention.half_seq = h;
  hardware.attention.share = std::min(1.0, large * (1 + h / static_cast<double>(many)) / fit.peak);
}

// A GPU's host runs ahead of it, or has recorded the step.
double visit_us(const at::Device& device) {
  if (!device.is_cpu()) return 0;
  return kOperationsOfVisit * operation_seconds(device) * 1e6;
}

Hardware measure_hardware(const RankAlone& rank) {
  const at::NoGradGuard no_grad;
  Hardware hardware;
  hardware.device = rank.device_name();
  hardware.ranks_per_host = rank.environment().local_size;
  hardware.hosts = std::max<int64_t>(1, rank.environment().world_size / std::max<int64_t>(1, hardware.ranks_per_host));
  measure_types(hardware, rank);
  hardware.memory = measure_memory_rates(rank);
  hardware.memory.gib = memory_of_rank(rank);
  hardware.host_memory = {hardware.memory.gb_per_s, hardware.memory.share};
  if (!rank.device().is_cpu()) hardware.host_memory = measure_host_memory();
  hardware.host_link = measure_link(rank, hardware.memory.gb_per_s);
  hardware.network = hardware.host_link;
  hardware.pcie = rank.device().is_cpu() ? hardware.host_link : measure_pcie(rank.device());
  hardware.overheads.unit_us = visit_us(rank.device());
  return hardware;
}

std::string lines_of(const Hardware& h) {
  std::string text;
  for (const Value::Member& m : h.peak_tflops.members())
    text += formatted("  products, %-10s %10.4g TFLOPS at most\n", m.key.c_str(), m.value.as_double());
  text += formatted("  of it %.0f %% at full size, half at %.0f rows or %.0f columns\n", 100 * h.products.share,
                    h.products.half_rows, h.products.half_width);
  text += formatted("  attention at %.0f %%, half at %.0f positions\n", 100 * h.attention.share, h.attention.half_seq);
  text += formatted("  memory %.2f GB/s, of it %.0f %% in an update, %.0f %% in passes with arithmetic and ",
                    h.memory.gb_per_s, 100 * h.memory.share, 100 * h.memory.arithmetic_share);
  text += formatted("%.0f %% in a norm, %.2f GiB per rank\n", 100 * h.memory.norm_share, h.memory.gib);
  text += formatted("  between ranks %.2f GB/s on the bus, %.1f us, and %.1f us at the end of a step\n",
                    h.host_link.gb_per_s, h.host_link.latency_us, h.host_link.rank_latency_us);
  return h.device == "cpu" ? text + formatted("  host %.0f us per visit of a unit\n", h.overheads.unit_us) : text;
}

std::string name_of(const RankAlone& rank, const BenchMachine& machine) {
  const int64_t ranks = rank.environment().world_size;
  if (DeviceRuntime* const device = device_runtime())
    return concat(device->facts(static_cast<int>(rank.environment().local_rank)).name, ", ", ranks,
                  ranks == 1 ? " rank" : " ranks");
  return concat(machine.processor, ", ", ranks, " ranks of ", at::get_num_threads(),
                at::get_num_threads() == 1 ? " thread" : " threads");
}

void write_file(const std::string& path, const Hardware& hardware) {
  std::ofstream file(path);
  file << hardware_value(hardware).to_json(2) << "\n";
  file.close();
  if (!file) throw fail(ErrorCode::io, "bench hardware: cannot write ", path, "\n   give --output a place with space");
}

// Before anything is measured.
void check_place(const std::filesystem::path& file) {
  std::error_code unknown;
  const std::filesystem::path folder = file.parent_path();
  if (std::filesystem::is_directory(file, unknown))
    throw fail(ErrorCode::config, "bench hardware: --output ", file.string(), " is a folder; name a file in it");
  if (!folder.empty() && !std::filesystem::is_directory(folder, unknown))
    throw fail(ErrorCode::config, "bench hardware: --output ", file.string(), ": there is no folder ", folder.string(),
               "\n   make it, or name a file in another one");
}

}  // namespace

BenchReport bench_hardware(const BenchArguments& arguments) {
  const RankEnvironment environment = read_rank_environment();
  const bool started = std::getenv("RANK") != nullptr;
  if (!started && arguments.whole("-n") > 1) become_launcher(arguments, "hardware");
  if (environment.rank == 0 && arguments.has("--output")) check_place(arguments.text("--output"));
  RankAlone rank(arguments, environment);
  rank.meet(Value::object());
  const BenchMachine machine = describe_machine();  // every rank waits here, so that nobody is seen at work
  Hardware hardware = measure_hardware(rank);
  hardware.name = name_of(rank, machine);
  hardware.from.set("*", "measured by drivetrain bench hardware");
  hardware.about = machine.idle ? "Written by drivetrain bench hardware."
                                : "Written by drivetrain bench hardware while others were at work: measure again.";
  BenchReport report = report_on("hardware", machine);
  report.json.set("hardware", hardware_value(hardware));
  report.text += hardware.name + "\n" + lines_of(hardware);
  report.silent = environment.rank != 0;
  if (!report.silent && arguments.has("--output")) {
    write_file(arguments.text("--output"), hardware);
    report.text += "written to " + arguments.text("--output") + "\n";
  }
  return report;
}

}  // namespace drivetrain
