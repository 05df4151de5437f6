#include "study/merge.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "study/cell_plan.h"
#include "study/environment.h"
#include "study/past_runs.h"
#include "study/records.h"
#include "study/report.h"

namespace drivetrain::study {
namespace {

namespace fs = std::filesystem;

// A ledger by what merging needs: cells in the report's order, of every repeat of a cell the last end, and the cells
// that ended early.
struct Part {
  std::string folder;
  std::vector<Value> lines;
  const Value* head = nullptr;
  std::vector<const Value*> cells, ends;
  std::map<std::string, const Value*> starts, stops;  // by run; by cell
  double stop_level = 0;                              // 0: no cell stops in it

  explicit Part(const std::string& path) : folder(path), lines(read_ledger(path)) {
    head = &last_head(lines);
    const std::map<std::string, const Value*> known = known_cells(lines);
    if (const Value* const order = head->find("cells")) {
      for (const Value& id : order->items())
        if (const auto at = known.find(id.as_string()); at != known.end()) cells.push_back(at->second);
    } else {
      for (const Value& line : lines)
        if (is_event(line, "cell")) cells.push_back(&line);
    }
    std::map<std::pair<std::string, int64_t>, const Value*> last;
    for (const Value& line : lines) {
      if (is_event(line, "start")) starts[line.find("run")->as_string()] = &line;
      if (is_event(line, "end")) last[{line.find("cell")->as_string(), line.find("block")->as_int()}] = &line;
    }
    for (const auto& [place, line] : last)
      if (line->find("state")->as_string() != state_name(State::skipped)) ends.push_back(line);
    if (const Value* const level = head->find("stop_level")) stop_level = level->as_double();
    for (const Value& line : lines)
      if (stop_level > 0 && is_event(line, "stopped")) stops[line.find("cell")->as_string()] = &line;
  }
  int64_t blocks() const {
    int64_t most = 0;
    for (const Value* const end : ends) most = std::max(most, end->find("block")->as_int() + 1);
    return most;
  }
};

std::string text_of(const Value* value) { return value ? shown(value->to_json()) : std::string("nothing"); }

void add_difference(const std::string& what, const Value* a, const Value* b, std::vector<std::string>& list) {
  if ((a == nullptr) == (b == nullptr) && (!a || *a == *b)) return;
  list.push_back(concat(what, ": ", text_of(a), " in the first, ", text_of(b), " in the second"));
}

// What all runs of one ledger have in common, the two have in common.
std::vector<std::string> differences_of(const Part& a, const Part& b) {
  std::vector<std::string> list;
  const Value *const base = a.head->find("base"), *const other = b.head->find("base");
  if (base && other && base->is_string() && other->is_string() && !(*base == *other))
    list.push_back("base: the file's content is another one");
  else
    add_difference("base", base, other, list);
  const Value *const here = a.head->find("environment"), *const there = b.head->find("environment");
  std::set<std::string> keys;
  for (const Value* const side : {here, there})
    if (side)
      for (const Value::Member& m : side->members()) keys.insert(m.key);
  for (const std::string& key : keys)
    add_difference(key, here ? here->find(key) : nullptr, there ? there->find(key) : nullptr, list);
  const Value *const one = a.head->find("study"), *const two = b.head->find("study");
  for (const char* key : {"seed_per_repeat", "dispatch"}) add_difference(key, one->find(key), two->find(key), list);
  const std::map<std::string, const Value*> known = known_cells(a.lines);
  for (const Value* const cell : b.cells) {
    const std::string id = cell->find("cell")->as_string();
    const auto same = known.find(id);
    if (same == known.end()) continue;
    if (!(*same->second->find("config") == *cell->find("config")))
      list.push_back(concat("cell ", shown(id), ": its config is another one"));
    else
      add_difference("cell " + id + ": reference", same->second->find("reference"), cell->find("reference"), list);
  }
  const auto is_reference = [](const Value* cell) { return cell->find("reference")->as_bool(); };
  const auto first = std::find_if(a.cells.begin(), a.cells.end(), is_reference),
             second = std::find_if(b.cells.begin(), b.cells.end(), is_reference);
  if (first != a.cells.end() && second != b.cells.end())
    add_difference("reference", (*first)->find("cell"), (*second)->find("cell"), list);
  return list;
}

// 0 where no repeat of a cell has run in both.
int64_t shift_of(const Part& a, const Part& b) {
  std::set<std::pair<std::string, int64_t>> places;
  for (const Value* const end : a.ends) places.insert({end->find("cell")->as_string(), end->find("block")->as_int()});
  const bool meet = std::any_of(b.ends.begin(), b.ends.end(), [&](const Value* end) {
    return places.contains({end->find("cell")->as_string(), end->find("block")->as_int()});
  });
  return meet ? a.blocks() : 0;
}

// Two repeats with one seed would count as two and say the same.
void check_seeds(const Part& a, const Part& b) {
  std::set<int64_t> seeds;
  for (const Value* const end : a.ends)
    if (const Value* const seed = end->find("seed")) seeds.insert(seed->as_int());
  for (const Value* const end : b.ends)
    if (const Value* const seed = end->find("seed"); seed && seeds.contains(seed->as_int()))
      throw fail(ErrorCode::config, "study merge: both studies have runs of the same cells with the seed ",
                 seed->as_int(),
                 "\n   repeats with one seed are one repeat: run the second study with another \"seed\"");
}

// A run that is in both, as where one folder is a copy of the other, would count twice.
void check_apart(const Part& a, const Part& b) {
  const auto place_of = [](const Value& start) {
    const Value *const folder = start.find("folder"), *const time = start.find("time");
    return concat(folder ? folder->to_json() : "", " ", time ? time->to_json() : "");
  };
  std::set<std::string> places;
  for (const auto& [run, start] : a.starts)
    if (start->find("folder")) places.insert(place_of(*start));
  for (const auto& [run, start] : b.starts)
    if (places.contains(place_of(*start)))
      throw fail(ErrorCode::config, "study merge: the run in ", shown(start->find("folder")->as_string()), " is in ",
                 shown(a.folder), " and in ", shown(b.folder),
                 "\n   it would count twice: merge studies that ran apart, not a study with a copy of it");
}

// The largest chance that the best cell was stopped: of two studies that both could stop one cell, the sum of both.
double stop_level_of(const Part& a, const Part& b) {
  const std::map<std::string, const Value*> known = known_cells(a.lines);
  const bool share = std::any_of(b.cells.begin(), b.cells.end(),
                                 [&](const Value* cell) { return known.contains(cell->find("cell")->as_string()); });
  return share ? a.stop_level + b.stop_level : std::max(a.stop_level, b.stop_level);
}

// Cells that a study stopped stay stopped, with all the repeats that they have in both.
void add_stops(const Part& a, const Part& b, std::vector<Value>& lines) {
  std::map<std::string, std::set<int64_t>> repeats;
  for (const Value& line : lines)
    if (is_event(line, "end")) repeats[line.find("cell")->as_string()].insert(line.find("block")->as_int());
  std::map<std::string, const Value*> stops = a.stops;
  stops.insert(b.stops.begin(), b.stops.end());
  for (const auto& [cell, stop] : stops) {
    lines.push_back(*stop);
    const int64_t had = stop->find("repeats")->as_int(), has = static_cast<int64_t>(repeats[cell].size());
    if (has > had) lines.back().set("repeats", has), lines.back().set("looked_at", had);
  }
}

double gate_of(const Part& part) {
  const Value* const gate = part.head->find("gate");
  return gate && gate->is_number() ? gate->as_double() : 0;
}
// None where one of them has none, else the narrower one: the order of the two decides nothing.
double gate_of(const Part& a, const Part& b) { return std::min(gate_of(a), gate_of(b)); }

// What the two judge by differently, and what holds now.
std::vector<std::string> unlike_rules(const Part& a, const Part& b) {
  std::vector<std::string> list;
  if (gate_of(a) != gate_of(b))
    list.push_back(formatted("their gates differ, %g and %g: ", gate_of(a), gate_of(b)) +
                   (gate_of(a, b) > 0 ? formatted("losses are compared by %g", gate_of(a, b))
                                      : std::string("losses of cells are not compared")));
  const Value *const one = a.head->find("outcome"), *const other = b.head->find("outcome");
  if ((one == nullptr) != (other == nullptr) || (one && !(*one == *other)))
    list.push_back("their outcomes differ: " + (one ? "that of the first is taken, " + one->to_json()
                                                    : std::string("cells are compared by speed, as in the first")));
  return list;
}

std::vector<Value> merged_lines(const Part& a, const Part& b, int64_t shift, int64_t repeats) {
  Value head = *a.head, ids = Value::array(), from = Value::array();
  std::vector<const Value*> cells;
  std::set<std::string> seen;
  const auto add_cells = [&](const Part& part, bool noise) {
    for (const Value* const cell : part.cells)
      if (cell->find("noise")->as_bool() == noise && seen.insert(cell->find("cell")->as_string()).second)
        cells.push_back(cell), ids.items().push_back(*cell->find("cell"));
  };
  for (const bool noise : {false, true}) add_cells(a, noise), add_cells(b, noise);
  for (const Part* const part : {&a, &b})
    from.items().push_back(fs::absolute(part->folder).lexically_normal().string());
  head.set("event", "study"), head.set("time", *a.lines.front().find("time")), head.set("repeats", repeats);
  head.set("cells", std::move(ids)), head.set("merged", std::move(from));
  if (const double level = stop_level_of(a, b); level > 0) head.set("stop_level", level);
  head.set("gate", gate_of(a, b));
  std::vector<Value> lines = {std::move(head)};
  std::map<std::string, std::string> configs;
  for (const Value* const cell : cells) {
    lines.push_back(*cell);
    configs[cell->find("cell")->as_string()] = cell->find("config")->as_string();
  }
  const std::string build = a.head->find("build")->as_string();
  const Value* const seed = a.head->find("study")->find("seed");
  for (const Part* const part : {&a, &b})
    for (const Value* const end : part->ends) {
      const std::string id = end->find("cell")->as_string();
      const int64_t block = end->find("block")->as_int() + (part == &b ? shift : 0);
      const std::string run =
          run_id_of(configs.at(id), id, seed ? static_cast<uint64_t>(seed->as_int()) : 1, block, build);
      const auto start = part->starts.find(end->find("run")->as_string());
      for (const Value* const line : {start == part->starts.end() ? nullptr : start->second, end}) {
        if (!line) continue;
        lines.push_back(*line);
        lines.back().set("run", run), lines.back().set("block", block);
      }
    }
  add_stops(a, b, lines);
  return lines;
}

}  // namespace

std::string merge_studies(const MergeRequest& request) {
  const Part a(request.a), b(request.b);
  const std::vector<std::string> differing = differences_of(a, b);
  if (!differing.empty())
    throw fail(ErrorCode::config, "study merge: ", shown(request.a), " and ", shown(request.b),
               " are no parts of one study\n     ", join(differing, "\n     "),
               "\n   both have to run one base on one machine with one build; `study compare` compares what differs");
  check_apart(a, b);
  const int64_t shift = shift_of(a, b);
  if (shift > 0) check_seeds(a, b);
  const int64_t repeats = std::max(a.blocks(), b.blocks() + shift);
  std::error_code unknown;
  if (fs::exists(request.into, unknown) && !fs::is_directory(request.into, unknown))
    throw fail(ErrorCode::config, "--into ", one_line(request.into), ": a folder is wanted, and this is a file\n   ",
               "name a folder that is not there yet");
  if (fs::exists(request.into + "/ledger.jsonl", unknown))
    throw fail(ErrorCode::config, one_line(request.into),
               " holds a study already, and nothing is overwritten\n   choose another folder for --into");
  const std::vector<Value> lines = merged_lines(a, b, shift, repeats);
  {
    Ledger ledger(request.into);
    for (const Value& line : lines) ledger.add(line);
  }
  for (const Part* const part : {&a, &b})  // of a base that stands in the study itself
    if (fs::exists(part->folder + "/base.json", unknown) && !fs::exists(request.into + "/base.json", unknown))
      fs::copy_file(part->folder + "/base.json", request.into + "/base.json", unknown);
  write_report(records_of(read_ledger(request.into), request.into));
  std::string text = concat(a.ends.size(), " and ", b.ends.size(), " runs are one study of ", repeats, " repeats\n");
  if (shift > 0) text += concat("both have run the same repeats: those of the second begin with ", shift + 1, " now\n");
  for (const std::string& line : unlike_rules(a, b)) text += line + "\n";
  return text + "report: " + request.into + "/report.html\n";
}

}  // namespace drivetrain::study
