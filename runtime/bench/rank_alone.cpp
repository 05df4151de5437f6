#include "bench/rank_alone.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <thread>

#include "app/commands.h"
#include "device/open_device.h"
#include "memory/cpu_allocator.h"

namespace drivetrain {
namespace {

constexpr double kPatience = 60;  // seconds for the others to come or to tell

std::shared_ptr<Log> log_beside_report(int64_t rank) {
  LogSettings settings = console_settings(rank);
  settings.out = settings.err;  // stdout is the report's
  return make_console_log(settings);
}

}  // namespace

RankAlone::RankAlone(const BenchArguments& arguments, const RankEnvironment& environment)
    : env_(environment),
      device_name_(arguments.text("--device", "cpu")),
      registry_(search_path(RunSettings(), arguments.all("--plugin-path"))),
      log_(log_beside_report(environment.rank)) {
  if (device_name_ != "cpu" && device_name_ != "cuda")
    throw fail(ErrorCode::config, "bench: --device wants cpu or cuda, got \"", device_name_, "\"");
  open(arguments);
  services_ = std::unique_ptr<Services>(new Services{
      *log_, *store_, env_.rank, env_.world_size, env_.local_rank, env_.local_size, device(), 0, {}, nullptr});
}

void RankAlone::open(const BenchArguments& arguments) {
  open_device(device_name_);
  install_cpu_allocator();
  store_ = make_store(env_, kPatience);
  if (!env_.local_known) find_local_ranks(*store_, env_, kPatience);
  use_device(device_name_, env_.local_rank, env_.local_size);
  const int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  at::set_num_threads(static_cast<int>(arguments.whole("--threads", std::max<int64_t>(1, cores / env_.local_size))));
}

void RankAlone::meet(const Value& facts) {
  check_arrival(*store_, env_, kPatience);
  check_same(*store_, env_, facts);
}

std::vector<std::vector<double>> RankAlone::gather(const std::vector<double>& mine) {
  const std::string key = concat("bench/gather/", ++gathered_, "/");
  Value list = Value::array();
  for (const double number : mine) list.items().push_back(number);
  if (env_.rank != 0) {
    store_->set(key + std::to_string(env_.rank), list.to_json());
    return {};
  }
  std::vector<std::vector<double>> all{mine};
  for (int64_t rank = 1; rank < env_.world_size; ++rank) {
    all.emplace_back();
    const Value theirs = parse_json(store_->get(key + std::to_string(rank), kPatience), "figures of a rank");
    for (const Value& number : theirs.items()) all.back().push_back(number.as_double());
  }
  return all;
}

at::Device RankAlone::device() const {
  if (device_name_ == "cpu") return at::Device(at::kCPU);
  return at::Device(at::kCUDA, static_cast<at::DeviceIndex>(env_.local_rank));
}

std::vector<double> numbers_of_ranks(Store& store, const std::string& key, int64_t rank, int64_t world_size,
                                     double mine) {
  if (rank != 0) {
    store.set(concat(key, "/", rank), Value(mine).to_json());
    return {};
  }
  std::vector<double> all{mine};
  for (int64_t other = 1; other < world_size; ++other)
    all.push_back(parse_json(store.get(concat(key, "/", other), kPatience), "a figure of a rank").as_double());
  return all;
}

}  // namespace drivetrain
