#include "study/cell_run.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <drivetrain/error.h>

#include "study/measure.h"

namespace drivetrain::study {
namespace {

void add_members(const Value& from, Value& to) {
  for (const Value::Member& m : from.members()) to.set(m.key, m.value);
}

}  // namespace

// Follows metrics.jsonl while it grows: when its first line came, how many there are, and the joules until then.
class CellProcess::MetricsWatch {
 public:
  MetricsWatch(std::string path, EnergyMeter* meter) : path_(std::move(path)), meter_(meter) {
    if (meter_) begin_j_ = meter_->joules();
  }

  void look(double now_s) {
    std::error_code none;
    const auto size = std::filesystem::file_size(path_, none);
    if (!none && size > read_) read_lines(now_s);
    if (meter_ && now_s - metered_s_ > 5) metered_s_ = now_s, meter_->joules();  // before a counter runs over
  }

  int64_t lines() const { return lines_; }
  double first_line_s() const { return first_line_s_; }

  // Joules of the whole launch, and from the first line to the last one with the steps that it took.
  void add_energy(Value& line) const {
    if (!meter_) return;
    line.set("energy_j", meter_->joules() - begin_j_);
    if (lines_ > lines_at_first_)
      line.set("steps_energy_j", last_line_j_ - first_line_j_), line.set("energy_steps", lines_ - lines_at_first_);
  }

 private:
  void read_lines(double now_s) {
    std::ifstream file(path_, std::ios::binary);
    file.seekg(static_cast<std::streamoff>(read_));
    const std::string more{std::istreambuf_iterator<char>(file), {}};
    read_ += more.size();
    const auto lines = std::count(more.begin(), more.end(), '\n');
    if (lines == 0) return;
    const bool first = lines_ == 0;
    lines_ += lines;
    if (meter_) last_line_j_ = meter_->joules();
    if (first) first_line_s_ = now_s, first_line_j_ = last_line_j_, lines_at_first_ = lines_;
  }

  const std::string path_;
  EnergyMeter* const meter_;
  uintmax_t read_ = 0;
  int64_t lines_ = 0, lines_at_first_ = 0;
  double first_line_s_ = 0, metered_s_ = 0, begin_j_ = 0, first_line_j_ = 0, last_line_j_ = 0;
};

CellProcess::CellProcess(const CellRun& run)
    : run_(run),
      kills_(oom_kills()),
      metrics_(std::make_unique<MetricsWatch>(run.folder + "/run/metrics.jsonl", run.meter)),
      load_(getpid()) {
  ProcessStart start;
  CellPlan plan = *run.plan;
  if (!run.hosts.empty()) plan.hosts = run.hosts;
  start.command = launch_command(plan, run.program, run.base, run.folder + "/run");
  if (run.seed) start.command.insert(start.command.end(), {"--set", concat("seed=", *run.seed)});
  start.environment = run.plan->environment, start.output = run.folder + "/console.txt";
  start.environment.insert(start.environment.end(), run.environment.begin(), run.environment.end());
  start.timeout_s = run.timeout_s, start.memory_limit = run.memory_limit, start.cpus = run.cpus;
  load_.look(0);
  process_ = std::make_unique<Process>(start);
}

CellProcess::~CellProcess() = default;

double CellProcess::now_s() const { return process_->now_s(); }
int64_t CellProcess::steps() const { return metrics_->lines(); }

std::optional<CellEnd> CellProcess::poll() {
  const std::optional<ProcessEnd> end = process_->poll();
  metrics_->look(now_s()), load_.look(now_s());
  return end ? std::optional(read(*end)) : std::nullopt;
}

CellEnd CellProcess::read(const ProcessEnd& end) {
  const std::string folder = run_.folder + "/run";
  const std::optional<HostLoad> load = load_.end();
  std::ifstream console(run_.folder + "/console.txt");
  const std::string said{std::istreambuf_iterator<char>(console), {}};
  CellEnd result{Value::object(), end.wall_s};
  // Of several runs side by side, the one that was killed.
  const bool oom_killed = oom_kills() > kills_ && (run_.cpus.empty() || end.code == 128 + SIGKILL);
  add_members(end_of(end, said, oom_killed), result.line);
  const Value figures = figures_of(folder, run_.figures);
  add_members(figures, result.line);
  metrics_->add_energy(result.line);
  const auto& steps = figures.find("step_s")->items();
  if (metrics_->first_line_s() > 0 && !steps.empty())
    result.line.set("startup_s", std::max(0.0, metrics_->first_line_s() - steps[0].as_double()));
  result.line.set("folder", run_.folder);
  if (run_.seed) result.line.set("seed", *run_.seed);
  if (load) result.line.set("load", value_of(*load));
  result.disk_full =
      end.code == static_cast<int>(ErrorCode::io) && said.find(std::strerror(ENOSPC)) != std::string::npos;
  return result;
}

}  // namespace drivetrain::study
