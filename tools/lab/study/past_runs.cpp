#include "study/past_runs.h"

#include <algorithm>
#include <filesystem>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "study/cell_plan.h"
#include "study/host_load.h"

namespace drivetrain::study {
namespace {

// What every run of a study has in common. The other keys add cells and repeats, or say what a report does with them.
constexpr const char* kSame[] = {
    "set", "keep", "seed", "seed_per_repeat", "world_size", "hosts", "environment", "memory_limit_bytes", "dispatch"};

[[noreturn]] void refuse_growth(const std::string& path, const std::vector<std::string>& list) {
  throw fail(
      ErrorCode::config, path, ": the study cannot grow into this one: what has run is another one's\n     ",
      join(list, "\n     "),
      "\n   bring back what was - repeats, levels and rows may be added - or begin a study of its own with another ",
      "\"output_dir\"");
}

void add_differences(const Value* before, const Value* now, const std::string& prefix, std::vector<std::string>& list) {
  if (!before && !now) return;
  const Value none;
  for (const std::string& one : differences(before ? *before : none, now ? *now : none, prefix)) list.push_back(one);
}

}  // namespace

bool is_event(const Value& line, const char* name) {
  const Value* const event = line.find("event");
  return event && event->is_string() && event->as_string() == name;
}

const Value& last_head(const std::vector<Value>& lines) {
  const auto last = std::find_if(lines.rbegin(), lines.rend(),
                                 [](const Value& line) { return is_event(line, "study") || is_event(line, "grown"); });
  if (last == lines.rend())
    throw fail(ErrorCode::io,
               "the ledger was not begun by `drivetrain study`\n   take its folder away and begin the study again");
  return *last;
}

std::map<std::string, const Value*> known_cells(const std::vector<Value>& lines) {
  std::map<std::string, const Value*> known;
  for (const Value& line : lines)
    if (is_event(line, "cell")) known[line.find("cell")->as_string()] = &line;
  return known;
}

std::map<std::string, State> ended_runs(const std::vector<Value>& lines, double allow_load) {
  std::map<std::string, State> ends;
  for (const Value& line : lines)
    if (is_event(line, "end") && !is_disturbed(line, allow_load))
      ends[line.find("run")->as_string()] = state_called(line.find("state")->as_string());
  std::erase_if(ends, [](const auto& end) { return end.second == State::skipped; });
  return ends;
}

std::set<std::string> stopped_cells(const std::vector<Value>& lines) {
  std::set<std::string> cells;
  for (const Value& line : lines)
    if (is_event(line, "stopped")) cells.insert(line.find("cell")->as_string());
  return cells;
}

double mean_wall_s(const std::string& folder) {
  std::error_code unknown;
  if (!std::filesystem::exists(folder + "/ledger.jsonl", unknown)) return 0;
  double sum = 0;
  int64_t runs = 0;
  for (const Value& line : read_ledger(folder))
    if (const Value* const wall = line.find("wall_s")) sum += wall->as_double(), ++runs;
  return runs > 0 ? sum / static_cast<double>(runs) : 0;
}

std::string run_id_of(const std::string& config, const std::string& cell, uint64_t seed, int64_t block,
                      const std::string& build) {
  return hash_of(concat(config, cell, seed, block, build)).substr(0, 16);
}

void check_grown(const Value& before, const Value& now, const std::string& path) {
  std::vector<std::string> list;
  const Value *const a = before.find("base"), *const b = now.find("base");
  if (a && b && a->is_string() && !(*a == *b))
    list.push_back("base: the file's content is another one");
  else
    add_differences(a, b, "base", list);
  const Value *const was = before.find("study"), *const is = now.find("study");
  if (was && is)
    for (const char* key : kSame) add_differences(was->find(key), is->find(key), key, list);
  add_differences(before.find("environment"), now.find("environment"), "environment", list);
  const Value *const had = before.find("repeats"), *const has = now.find("repeats");
  if (had && has && has->as_int() < had->as_int())
    list.push_back(concat("repeats: ", had->as_int(), " when it began, ", has->as_int(), " now"));
  if (!list.empty()) refuse_growth(path, list);
}

void check_known_cells(const std::vector<Value>& lines, const std::vector<Cell>& cells,
                       const std::vector<CellPlan>& plans, const std::string& path) {
  std::vector<std::string> list;
  for (const auto& [id, line] : known_cells(lines)) {
    const auto cell = std::find_if(cells.begin(), cells.end(), [&](const Cell& one) { return one.id == id; });
    if (cell == cells.end()) {
      list.push_back(concat("cell ", shown(id), " is not in the study any more"));
      continue;
    }
    const CellPlan& plan = plans[static_cast<size_t>(cell - cells.begin())];
    const Value *const config = line->find("config"), *const reference = line->find("reference");
    if (reference && reference->as_bool() != cell->is_reference)
      list.push_back(concat("cell ", shown(id), cell->is_reference ? " is" : " is not", " the reference now"));
    if (!config || config->as_string() == plan.config) continue;
    const size_t told = list.size();
    const Value launch = launch_value(plan);
    add_differences(line->find("launch"), &launch, "cell " + id, list);
    if (list.size() == told) list.push_back(concat("cell ", shown(id), ": its resolved config is another one"));
  }
  if (!list.empty()) refuse_growth(path, list);
}

}  // namespace drivetrain::study
