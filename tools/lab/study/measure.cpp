#include "study/measure.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <regex>
#include <sstream>

#include <drivetrain/error.h>

#include "study/statistics.h"

namespace drivetrain::study {
namespace {

namespace fs = std::filesystem;

std::string file_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// From the last "drivetrain: error: ", else the last lines.
std::string reason_in(const std::string& console) {
  const std::string begin = "drivetrain: error: ";
  const size_t error = console.find(begin);
  size_t from = error == std::string::npos ? 0 : error + begin.size();
  if (error == std::string::npos) {
    from = console.size();
    for (int lines = 0; from > 0 && lines < 4; --from) lines += console[from - 1] == '\n';
  }
  std::string text = console.substr(from, 1500);
  if (const size_t end = text.find("\ndrivetrain launch: "); end != std::string::npos) text.resize(end);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

// "rank 1 failed first: ...", "rank 0 failed: ..."
int64_t failed_rank(const std::string& console) {
  std::smatch found;
  static const std::regex form("rank ([0-9]+) failed( first)?: ");
  return std::regex_search(console, found, form) ? std::stoll(found[1]) : -1;
}

// Where it was when memory ended: "hook attach", "block.3", "step 2", "before the run began".
std::string phase_in(const std::string& reason) {
  std::smatch found;
  for (const char* form :
       {"hook ([a-z_]+)", "in (forward|backward|update|loading)", "(before the run began)", "(step [0-9]+)"})
    if (std::regex_search(reason, found, std::regex(form))) return found[1];
  return "";
}

int64_t bytes_in(const std::string& reason) {
  std::smatch found;
  static const std::regex form("(?:map|of|allocate|wanted:?) ([0-9]{3,18}) bytes");
  return std::regex_search(reason, found, form) ? std::stoll(found[1]) : 0;
}

State state_of(const ProcessEnd& end, bool oom_killed) {
  if (end.stopped) return State::skipped;
  if (end.timed_out) return State::timeout;
  if (oom_killed && end.code != 0) return State::oom;
  switch (end.code) {
    case 0:
      return State::ok;
    case 2:
    case 3:
      return State::refused;
    case 4:
      return State::oom;
    case 7:
      return State::nan;
    default:
      return State::crashed;
  }
}

std::vector<Value> lines_of(const std::string& text) {
  std::vector<Value> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    try {
      lines.push_back(parse_json(line, "metrics.jsonl"));
    } catch (const Error&) {  // the last line of a run that was killed
    }
  }
  return lines;
}

Value list_of(const std::vector<Value>& lines, const char* key) {
  Value list = Value::array();
  for (const Value& line : lines)
    if (const Value* const value = line.find(key)) list.items().push_back(*value);
  return list;
}

// By name: at which steps a figure was reported, and its values; null where one was no number.
Value series_of(const std::vector<Value>& lines, const std::set<std::string>& wanted) {
  Value all = Value::object();
  for (const Value& line : lines) {
    const Value* const step = line.find("step");
    if (!step) continue;
    for (const Value::Member& m : line.members()) {
      if (!wanted.contains(m.key) && m.key != "valid_loss" && !m.key.starts_with("eval/")) continue;
      if (!all.find(m.key)) {
        Value empty = Value::object();
        empty.set("step", Value::array()), empty.set("value", Value::array());
        all.set(m.key, std::move(empty));
      }
      Value& series = *const_cast<Value*>(all.find(m.key));
      const_cast<Value*>(series.find("step"))->items().push_back(*step);
      const_cast<Value*>(series.find("value"))->items().push_back(m.value.is_number() ? m.value : Value());
    }
  }
  return all;
}

Value peaks_of(const Value& memory) {
  Value peaks = Value::object();
  const Value* const ranks = memory.find("ranks");
  if (!ranks) return peaks;
  for (const Value& rank : ranks->items())
    for (const Value::Member& m : rank.members()) {
      const Value* const before = peaks.find(m.key);
      if (m.value.is_number() && (!before || before->as_double() < m.value.as_double())) peaks.set(m.key, m.value);
    }
  return peaks;
}

Value json_file(const fs::path& path) {
  try {
    return fs::exists(path) ? parse_json(file_text(path), path.string()) : Value();
  } catch (const Error&) {  // of a run that was killed
    return {};
  }
}

double number_in(const Value& value, const char* key) {
  const Value* const number = value.find(key);
  return number && number->is_number() ? number->as_double() : 0;
}

// Shares of a step: every part's mean over ranks, and communication's, which lies in the parts, with the rank that has
// most of it.
void add_shares(const Value& times, Value& figures) {
  const Value* const ranks = times.find("ranks");
  if (!ranks || ranks->items().empty()) return;
  std::map<std::string, double> shares;
  double communication = 0, most = 0;
  for (const Value& rank : ranks->items()) {
    const Value *const seconds = rank.find("seconds"), *const calls = rank.find("communication");
    double all = 0;
    if (seconds)
      for (const Value::Member& part : seconds->members()) all += part.value.as_double();
    if (all <= 0 || !calls) return;
    const double count = static_cast<double>(ranks->items().size());
    for (const Value::Member& part : seconds->members()) shares[part.key] += part.value.as_double() / all / count;
    const double share = number_in(*calls, "seconds") / all;
    communication += share / count, most = std::max(most, share);
  }
  Value parts = Value::object();
  for (const auto& [part, share] : shares) parts.set(part, share);
  figures.set("part_shares", std::move(parts)), figures.set("communication_share", communication);
  figures.set("communication_share_most", most);
}

}  // namespace

Value end_of(const ProcessEnd& end, const std::string& console, bool oom_killed) {
  const State state = state_of(end, oom_killed);
  Value line = Value::object();
  line.set("state", state_name(state)), line.set("exit", int64_t{end.code}), line.set("wall_s", end.wall_s);
  if (state == State::ok) return line;
  std::string reason = reason_in(console);
  if (state == State::skipped) reason = "stopped by a second signal to the study; it runs again with --resume";
  if (state == State::timeout)
    reason = concat("had not ended after its \"timeout_s\", ", end.wall_s, " s with its end");
  if (oom_killed) reason = "the kernel ended a process for memory (its control group's limit)\n" + reason;
  line.set("reason", reason);
  if (const int64_t rank = failed_rank(console); rank >= 0) line.set("rank", rank);
  if (end.code > 128) {
    const int signal = end.code - 128;
    line.set("signal", int64_t{signal}), line.set("signal_name", strsignal(signal));
  }
  if (state != State::oom) return line;
  if (const std::string phase = phase_in(reason); !phase.empty()) line.set("phase", phase);
  if (const int64_t bytes = bytes_in(reason); bytes > 0) line.set("bytes", bytes);
  return line;
}

Value figures_of(const std::string& folder, const std::set<std::string>& wanted) {
  const std::vector<Value> lines = lines_of(file_text(fs::path(folder) / "metrics.jsonl"));
  Value figures = Value::object();
  for (const char* key : {"step_s", "loss", "tokens", "padding"}) figures.set(key, list_of(lines, key));
  if (Value series = series_of(lines, wanted); !series.members().empty()) figures.set("figures", std::move(series));
  figures.set("peak_memory", peaks_of(json_file(fs::path(folder) / "memory.json")));
  add_shares(json_file(fs::path(folder) / "step_times.json"), figures);
  return figures;
}

std::vector<std::string> metric_names(const std::string& folder) {
  std::set<std::string> names;
  for (const Value& line : lines_of(file_text(fs::path(folder) / "metrics.jsonl")))
    for (const Value::Member& m : line.members())
      if (m.value.is_number()) names.insert(m.key);
  return {names.begin(), names.end()};
}

Window steady_window(const std::vector<double>& step_s, const Warmup& warmup) {
  if (warmup.only_first > 0) {
    const auto wanted = static_cast<size_t>(warmup.only_first);
    return {0, std::min(wanted, step_s.size()), step_s.size() < wanted};
  }
  const auto first = std::min(static_cast<size_t>(warmup.first), step_s.empty() ? 0 : step_s.size() - 1);
  if (!warmup.steady) return {first, step_s.size(), static_cast<size_t>(warmup.first) >= step_s.size()};
  const size_t half = step_s.size() / 2, window = static_cast<size_t>(warmup.window);
  const std::vector<double> late(step_s.begin() + static_cast<std::ptrdiff_t>(half), step_s.end());
  const double level = median_of(late);
  for (size_t i = first; i + window <= step_s.size() && i <= half; ++i) {
    const auto begin = step_s.begin() + static_cast<std::ptrdiff_t>(i);
    const double here = median_of({begin, begin + static_cast<std::ptrdiff_t>(window)});
    if (std::abs(here - level) <= warmup.tolerance * level) return {i, step_s.size(), false};
  }
  return {half, step_s.size(), true};
}

double run_figure(const std::vector<double>& measured_s, const Warmup& warmup) {
  if (warmup.only_first == 0 || measured_s.empty()) return quantile_of(measured_s, warmup.quantile);
  return std::accumulate(measured_s.begin(), measured_s.end(), 0.0) / static_cast<double>(measured_s.size());
}

int64_t oom_kills() {
  std::ifstream own("/proc/self/cgroup");
  for (std::string line; std::getline(own, line);) {
    if (!line.starts_with("0::")) continue;
    std::ifstream events("/sys/fs/cgroup" + line.substr(3) + "/memory.events");
    int64_t count = 0;
    for (std::string word; events >> word;)
      if (word == "oom_kill") events >> count;
    return count;
  }
  return 0;
}

}  // namespace drivetrain::study
