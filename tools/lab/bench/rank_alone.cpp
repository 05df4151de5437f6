#include "bench/rank_alone.h"

#include <unistd.h>

#include <filesystem>

#include "bench/machine.h"
#include "device/open_device.h"
#include "memory/cpu_allocator.h"
#include "plugin_calls/plugin_call.h"
#include "rendezvous/gather_values.h"
#include "shared/commands.h"
#include "shared/math_threads.h"
#include "train/rank_start.h"
#include "train/start_device.h"

namespace drivetrain {
namespace {

constexpr double kPatience = 60;  // seconds for the others to come or to tell

}  // namespace

[[noreturn]] void become_launcher(const BenchArguments& arguments, const std::string& bench) {
  std::vector<std::string> words{std::filesystem::read_symlink("/proc/self/exe"), "launch",  "-n",
                                 std::to_string(arguments.whole("-n")),           "--bench", bench};
  for (const std::string& word : arguments.as_words({"-n"})) words.push_back(word);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  throw fail(ErrorCode::io, "bench ", bench, ": cannot start ", words.front(), " launch");
}

RankAlone::RankAlone(const BenchArguments& arguments, const RankEnvironment& environment)
    : env_(environment),
      device_name_(arguments.text("--device")),
      registry_(search_path(RunSettings(), arguments.all("--plugin-path"))),
      log_(report_log(environment.rank)) {
  open(arguments);
  services_ = std::unique_ptr<Services>(new Services{
      *log_, *store_, env_.rank, env_.world_size, env_.local_rank, env_.local_size, device(), 0, {}, nullptr, nullptr});
}

void RankAlone::open(const BenchArguments& arguments) {
  ignore_write_signals();
  open_device(device_name_);
  install_cpu_allocator();
  store_ = make_store(env_, kPatience, [this](const std::string& line) { log_->warning(line); });
  if (!env_.local_known) find_local_ranks(*store_, env_, kPatience);
  work_rank().rank = env_.rank, work_rank().world_size = env_.world_size;
  start_device(device_name_, env_.local_rank, env_.local_size);
  set_math_threads(arguments.whole("--threads", cores_of_rank(env_)));
}

void RankAlone::meet(const Value& facts) {
  check_arrival(*store_, env_, kPatience);
  check_same(*store_, env_, facts, kPatience);
}

std::vector<std::vector<double>> RankAlone::gather(const std::vector<double>& mine) {
  Value list = Value::array();
  for (const double number : mine) list.items().push_back(number);
  std::vector<std::vector<double>> all;
  for (const Value& theirs : gather_values(*store_, concat("bench/gather/", ++gathered_), env_, list, kPatience)) {
    all.emplace_back();
    for (const Value& number : theirs.items()) all.back().push_back(number.as_double());
  }
  return all;
}

at::Device RankAlone::device() const {
  if (device_name_ == "cpu") return at::Device(at::kCPU);
  return at::Device(at::kCUDA, static_cast<at::DeviceIndex>(device_index(env_.local_rank, env_.local_size)));
}

}  // namespace drivetrain
