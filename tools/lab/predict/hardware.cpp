#include "predict/hardware.h"

#include <algorithm>
#include <filesystem>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "base/suggest.h"

namespace drivetrain {
namespace {

namespace fs = std::filesystem;

constexpr double kMostShare = 1.0, kMostRate = 1e9;
constexpr double kLeastShare = 1e-3, kLeastRate = 1e-3;
constexpr double kLeastPeak = 1e-9, kMostPeak = 1e6;  // TFLOPS

// What a plan may ask for. 8 bits differ by what their scales are of, not by their type.
const std::vector<std::string> kTypes = {"float64", "float32", "bfloat16", "float16", "float8", "float8_blocks"};

OptionTable product_table() {
  return table<ProductRates>()
      .field("share", &ProductRates::share, "share of the peak that large products reach")
      .required()
      .range(kLeastShare, kMostShare)
      .field("half_rows", &ProductRates::half_rows, "rows at which a product has half of that rate")
      .at_least(0)
      .field("half_width", &ProductRates::half_width, "columns, in or out, at which a product has half of that rate")
      .at_least(0)
      .field("experts_share", &ProductRates::experts_share,
             "share of that rate in products of experts, 0.001 at least; 0: all of it")
      .range(0, kMostShare);
}

OptionTable attention_table() {
  return table<AttentionRates>()
      .field("share", &AttentionRates::share, "share of the peak that scores and weighted sums reach")
      .required()
      .range(kLeastShare, kMostShare)
      .field("half_seq", &AttentionRates::half_seq, "positions at which attention has half of that rate")
      .at_least(0);
}

OptionTable memory_table() {
  return table<MemoryRates>()
      .field("gb_per_s", &MemoryRates::gb_per_s, "bandwidth of the memory of a rank, 1e9 bytes per second")
      .required()
      .range(kLeastRate, kMostRate)
      .field("share", &MemoryRates::share, "share of it that simple passes reach")
      .required()
      .range(kLeastShare, kMostShare)
      .field("arithmetic_share", &MemoryRates::arithmetic_share,
             "share in passes with arithmetic, such as norms and activation functions; 0: as share")
      .range(0, kMostShare)
      .field("norm_share", &MemoryRates::norm_share, "share in the norm of gradients, which only reads; 0: as share")
      .range(0, kMostShare)
      .field("gib", &MemoryRates::gib, "memory that a rank may use, GiB")
      .required()
      .range(1e-6, kMostRate);
}

OptionTable host_memory_table() {
  return table<HostMemoryRates>()
      .field("gb_per_s", &HostMemoryRates::gb_per_s, "bandwidth, 1e9 bytes per second; 0: not known")
      .range(0, kMostRate)
      .field("share", &HostMemoryRates::share, "share of it that an optimizer's update reaches")
      .range(0, kMostShare);
}

OptionTable link_table() {
  return table<LinkRates>()
      .field("gb_per_s", &LinkRates::gb_per_s, "bandwidth in one direction, 1e9 bytes per second")
      .required()
      .range(kLeastRate, kMostRate)
      .field("share", &LinkRates::share, "share of it that large messages reach")
      .required()
      .range(kLeastShare, kMostShare)
      .field("latency_us", &LinkRates::latency_us, "time of a short message from one rank to the next, microseconds")
      .required()
      .range(0, 1e6)
      .field("rank_latency_us", &LinkRates::rank_latency_us,
             "what a step waits for each further rank of the groups that sum gradients, microseconds")
      .range(0, 1e6);
}

OptionTable overhead_table() {
  return table<Overheads>()
      .field("context_gib", &Overheads::context_gib, "device memory that is used before the first tensor, GiB")
      .at_least(0)
      .field("communicator_gib", &Overheads::communicator_gib,
             "memory of a communicator per axis of several ranks, GiB")
      .at_least(0)
      .field("allocator_share", &Overheads::allocator_share, "what the allocator keeps on top, as a share")
      .range(0, 1)
      .field("unit_us", &Overheads::unit_us, "host time per visit of a unit that the device waits for, microseconds")
      .at_least(0)
      .field("micro_batch_us", &Overheads::micro_batch_us, "host time per micro-batch, microseconds")
      .at_least(0)
      .field("step_us", &Overheads::step_us, "host time per step, microseconds")
      .at_least(0);
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string path_of(const std::string& file, const std::string& folder) {
  std::error_code ignored;
  if (fs::exists(file, ignored)) return file;
  const fs::path shipped = fs::path(folder) / (file + ".json");
  if (file.find('/') == std::string::npos && fs::exists(shipped, ignored)) return shipped.string();
  const std::vector<std::string> names = names_in(folder);
  throw fail(ErrorCode::config, "there is no hardware file ", shown(file), suggestion(file, names),
             "\n   --hardware takes a path or one of these names; `drivetrain bench hardware --output FILE` writes one "
             "for the machine at hand");
}

constexpr const char* kRemedy =
    "\n   measure it (`drivetrain bench hardware --output FILE` writes every key that is needed) or take it from a "
    "file of "
    "configs/hardware";

// As in every object of options.
bool is_comment(const std::string& key) { return key.starts_with('_') || key.starts_with('$'); }

void check_peaks(const Hardware& hardware) {
  const Value& peaks = hardware.peak_tflops;
  if (!peaks.is_object() || peaks.members().empty())
    throw fail(ErrorCode::config, hardware.path, ": peak_tflops is an object of type and TFLOPS, such as {\"",
               "float32\": 19.5}, found ", peaks.is_object() ? "an empty one" : peaks.type_name(), kRemedy);
  for (const Value::Member& m : peaks.members()) {
    if (is_comment(m.key)) continue;
    if (std::find(kTypes.begin(), kTypes.end(), m.key) == kTypes.end())
      throw fail(ErrorCode::config, m.value.key_where.text(), "  peak_tflops.", shown(m.key),
                 " is not a type that a plan asks for", suggestion(m.key, kTypes));
    if (!m.value.is_number() || !(m.value.as_double() >= kLeastPeak && m.value.as_double() <= kMostPeak))
      throw fail(ErrorCode::config, m.value.where.text(), "  peak_tflops.", m.key, " is ", m.value.to_json(),
                 ", but it is a number of TFLOPS from ", kLeastPeak, " to ", kMostPeak, kRemedy);
  }
}

// Where 0 says that a figure is not given, what lies between it and the least of its kind is a slip: a plan by it would
// count in years.
void check_small_figures(const Value& file) {
  struct Figure {
    const char *group, *key;
    double least;
  };
  constexpr Figure kFigures[] = {{"products", "experts_share", kLeastShare},
                                 {"memory", "arithmetic_share", kLeastShare},
                                 {"memory", "norm_share", kLeastShare},
                                 {"host_memory", "share", kLeastShare},
                                 {"host_memory", "gb_per_s", kLeastRate}};
  for (const auto& [group, key, least] : kFigures) {
    const Value* const rates = file.find(group);
    const Value* const given = rates ? rates->find(key) : nullptr;
    if (given && given->is_number() && given->as_double() > 0 && given->as_double() < least)
      throw fail(ErrorCode::config, given->where.text(), "  ", group, ".", key, " is ", given->to_json(),
                 ", but it is 0 or at least ", least, kRemedy);
  }
}

}  // namespace

const OptionTable& hardware_table() {
  static const OptionTable all =
      table<Hardware>()
          .field("name", &Hardware::name, "what the machine is called")
          .required()
          .field("about", &Hardware::about, "where it is from, in words")
          .field("sources", &Hardware::sources, "where the figures are from")
          .field("from", &Hardware::from, "where each constant is from: data sheet, measured, fitted to which rows")
          .field("device", &Hardware::device, "what a config says for `device`")
          .required()
          .one_of({"cpu", "cuda"})
          .field("peak_tflops", &Hardware::peak_tflops, "dense peak of a rank by type, 1e12 operations per second")
          .required()
          .field("multiprocessors", &Hardware::multiprocessors, "of a GPU: tiles of products run on them; 0: not known")
          .at_least(0)
          .group("products", &Hardware::products, product_table(), "matrix products")
          .group("attention", &Hardware::attention, attention_table(), "attention")
          .group("memory", &Hardware::memory, memory_table(), "memory of a rank")
          .group("host_memory", &Hardware::host_memory, host_memory_table(),
                 "a rank's share of its host's memory, beside a device; only for runs that keep state there")
          .group("host_link", &Hardware::host_link, link_table(), "between ranks of a host")
          .group("network", &Hardware::network, link_table(), "out of a host, for all its ranks together")
          .group("pcie", &Hardware::pcie, link_table(), "between a device and its host")
          .field("hosts", &Hardware::hosts, "how many hosts there are")
          .at_least(1)
          .field("ranks_per_host", &Hardware::ranks_per_host, "ranks that a host has room for")
          .required()
          .at_least(1)
          .field("overlap", &Hardware::overlap, "share of a computation beside which messages move")
          .range(0, 1)
          .group("overheads", &Hardware::overheads, overhead_table(), "what comes on top");
  return all;
}

double Hardware::peak(const std::string& dtype) const {
  if (const Value* const tflops = peak_tflops.find(dtype)) return tflops->as_double() * 1e12;
  std::vector<std::string> types;
  for (const Value::Member& m : peak_tflops.members())
    if (!is_comment(m.key)) types.push_back(m.key);
  throw fail(
      ErrorCode::config, path, ": no peak_tflops.", dtype, ", the type that the run computes in; the file has ",
      join(types),
      "\n   measure it (`drivetrain bench hardware --output FILE` writes float32 and bfloat16, of a GPU float16, too, "
      "float8 from sm_89 on, and float8_blocks on sm_90) or take it from a file of configs/hardware");
}

double Hardware::host_memory_rate() const {
  if (host_memory.gb_per_s > 0 && host_memory.share > 0) return host_memory.gb_per_s * 1e9 * host_memory.share;
  throw fail(ErrorCode::config, path, ": no host_memory.", host_memory.gb_per_s > 0 ? "share" : "gb_per_s",
             ", and the run updates its parameters in the host's memory", kRemedy);
}

Hardware read_hardware(const std::string& file, const std::string& folder) {
  const std::string path = path_of(file, folder);
  Value value = read_json_file(path);
  if (!value.is_object())
    throw fail(ErrorCode::config, path, ": a hardware file is an object, found ", value.type_name());
  for (const char* group : {"products", "attention", "memory", "host_link", "network", "pcie"}) {
    if (value.find(group)) continue;
    Value none = Value::object();
    none.where = value.where;
    value.set(group, none);
  }
  Problems problems;
  const auto parsed = hardware_table().parse(value, "hardware file " + path, "", problems);
  if (!problems.empty()) throw fail(problems.list().front().code, problems.text(), kRemedy);
  check_small_figures(value);
  Hardware hardware = *static_cast<const Hardware*>(parsed.get());
  hardware.path = path;
  check_peaks(hardware);
  return hardware;
}

Value hardware_value(const Hardware& hardware) { return hardware_table().to_value(&hardware); }

}  // namespace drivetrain
