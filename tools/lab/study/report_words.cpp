// The words that all forms of the report share.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "study/design.h"
#include "study/report.h"

namespace drivetrain::study {
namespace {

std::string against_text(const Comparison& c, bool of_speed) {
  if (c.verdict == Verdict::untested)
    return formatted("%s; one repeat, or too few, says nothing about chance", change_text(c.change, c.scale).c_str());
  const std::string range = formatted("%s, 95 %% interval %s, n = %d, p = %.2g after Holm's correction",
                                      change_text(c.change, c.scale).c_str(),
                                      interval_text(*c.interval, c.scale, c.n).c_str(), c.n, *c.paired_holm);
  if (c.verdict == Verdict::no_difference) return "no difference shown (" + range + ")";
  return std::string(verdict_text(c.verdict, of_speed)) + " than the reference (" + range + ")";
}

}  // namespace

bool varies(const StudyRecord& study, size_t factor) {
  for (const CellRecord& cell : study.cells)
    if (cell.levels[factor].second != study.cells.front().levels[factor].second) return true;
  return false;
}

// Levels and numbers of ranks go together.
bool goes_with_ranks(const StudyRecord& study, size_t factor) {
  std::map<std::string, int64_t> ranks;
  std::map<int64_t, std::string> levels;
  for (const CellRecord& cell : study.cells) {
    const std::string& level = cell.levels[factor].second;
    const bool fits = ranks.try_emplace(level, cell.world_size).first->second == cell.world_size &&
                      levels.try_emplace(cell.world_size, level).first->second == level;
    if (!fits) return false;
  }
  return levels.size() > 1;
}

// Where several factors change with the ranks, the one that reads like them.
bool is_of_ranks(const StudyRecord& study, size_t factor) {
  if (!goes_with_ranks(study, factor)) return false;
  const bool reads = std::all_of(study.cells.begin(), study.cells.end(), [&](const CellRecord& cell) {
    return cell.levels[factor].second == std::to_string(cell.world_size);
  });
  for (size_t other = 0; !reads && other < study.cells.front().levels.size(); ++other)
    if (other != factor && goes_with_ranks(study, other)) return false;
  return true;
}

std::string change_text(double change, Scale scale) {
  if (scale == Scale::difference) return formatted("%+.4g", change);
  return change > 9 ? formatted("x %.3g", 1 + change) : percent(change);
}

std::string interval_text(const Interval& interval, Scale scale, int n) {
  if (scale == Scale::ratio)
    if (const double factor = std::sqrt((1 + interval.high) / (1 + interval.low)); !(factor <= 2))
      return formatted("n = %d shows nothing below a factor of ", n) +
             (factor < 1e6 ? formatted("%.2g", factor) : std::string("a million"));
  return change_text(interval.low, scale) + " to " + change_text(interval.high, scale);
}

const char* verdict_text(Verdict verdict, bool of_speed) {
  switch (verdict) {
    case Verdict::better:
      return of_speed ? "faster" : "better";
    case Verdict::worse:
      return of_speed ? "slower" : "worse";
    case Verdict::no_difference:
      return "no difference shown";
    default:
      return "untested";
  }
}

std::string value_text(const Analysis& analysis, double value) {
  return analysis.outcomes.empty() ? speed_text(value) : formatted("%.5g", value);
}

std::string ranked_by(const Analysis& analysis) {
  return analysis.outcomes.empty() ? "tokens per rank and second" : analysis.outcomes.front().name();
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : printable(text)) {
    if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else if (c == '&')
      result += "&amp;";
    else if (c == '"')
      result += "&quot;";
    else
      result += c;
  }
  return result;
}

std::string numeric(const std::string& text) { return "<td class=n>" + text + "</td>"; }

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : c == '\n' ? std::string(" ") : std::string(1, c);
  return quoted + "\"";
}

// Repeats of cells of which every run was under a load that the study does not allow.
size_t repeats_under_load(const StudyRecord& study) {
  size_t count = 0;
  for (const CellRecord& cell : study.cells) {
    std::set<int64_t> blocks;
    for (const RunRecord& run : cell.disturbed) blocks.insert(run.block);
    for (const RunRecord& run : cell.runs) blocks.erase(run.block);
    count += blocks.size();
  }
  return count;
}

std::string repeats_text(const StudyRecord& study) {
  size_t ended = 0;
  size_t stopped = 0, spared = 0;
  for (const CellRecord& cell : study.cells) {
    ended += cell.runs.size();
    if (cell.stopped.repeats == 0) continue;
    ++stopped, spared += static_cast<size_t>(std::max<int64_t>(0, study.repeats - cell.stopped.repeats));
  }
  const auto of = [&](int64_t repeats) { return study.cells.size() * static_cast<size_t>(repeats) - spared; };
  const bool twice =
      std::any_of(study.cells.begin(), study.cells.end(), [](const CellRecord& c) { return c.is_noise; });
  const std::string cells = concat(study.cells.size() - (twice ? 1 : 0), " cells",
                                   twice ? " and the reference a second time (A/A), " : ", ") +
                            (stopped > 0 ? concat(stopped, " of them stopped early, ") : std::string());
  const size_t loaded = repeats_under_load(study);
  const std::string aside = loaded > 0 ? concat(", ", loaded, " more under load, which count for nothing") : "";
  if (study.until <= 0)
    return concat(cells, study.repeats, study.repeats == 1 ? " repeat" : " repeats", " each; ", ended, " of ",
                  of(study.repeats), " runs have ended", aside, ".");
  const std::string rule = concat(cells, "up to ", study.repeats, " repeats each, until a difference of ",
                                  100 * study.until, " % would be shown; ");
  if (study.enough > 0) return concat(rule, study.enough, " were enough, and the study has ended.");
  return concat(rule, ended, " of at most ", of(study.repeats), " runs have ended", aside, ".");
}

std::string rule_text(const Warmup& warmup) {
  if (warmup.only_first > 0) return concat("A run's speed is the mean of its first ", warmup.only_first, " steps.");
  const std::string figure = warmup.quantile >= 0.5 ? "median" : warmup.quantile > 0 ? "10 % quantile" : "fastest one";
  if (!warmup.steady)
    return concat("A run's speed is the ", figure, " of its steps after the first ", warmup.first, ".");
  return concat("A run's speed is the ", figure, " of its steady steps: from the first window of ", warmup.window,
                " steps whose median is within ", 100 * warmup.tolerance, " % of that of the second half of the run.");
}

std::string percent(double change) { return formatted("%+.1f %%", 100 * change); }

std::string speed_text(double tgs) { return formatted(tgs < 1000 ? "%.4g" : "%.0f", tgs); }

std::string megabytes_text(double bytes) { return bytes > 0 ? formatted("%.1f", bytes / 1e6) : ""; }

bool is_all_levels(const CellRecord& cell) {
  std::string by_levels;
  for (const auto& [factor, level] : cell.levels) by_levels += (by_levels.empty() ? "" : ",") + factor + "=" + level;
  return file_name(by_levels) == cell.id;
}

std::string label_of(const CellRecord& cell, const StudyRecord& study) {
  if (cell.is_noise) return "A/A: the reference again";
  std::string label;
  for (size_t f = 0; f < cell.levels.size(); ++f)
    if (varies(study, f)) label += (label.empty() ? "" : ", ") + cell.levels[f].first + " " + cell.levels[f].second;
  return !is_all_levels(cell) || label.empty() ? cell.id : label;
}

std::string state_text(const CellResult& result) {
  if (result.state == State::ok) return "ok";
  if (!result.begun && !result.cell->disturbed.empty()) return "under load alone: no run counts";
  if (!result.begun && result.state != State::refused) return "not run yet";
  const Value* const end = result.cell->runs.empty() ? nullptr : &result.cell->runs.back().end;
  const auto text = [&](const char* key) {
    const Value* const value = end ? end->find(key) : nullptr;
    return value && value->is_string() ? value->as_string() : std::string();
  };
  const auto number = [&](const char* key) {
    const Value* const value = end ? end->find(key) : nullptr;
    return value && value->is_number() ? value->as_int() : int64_t{-1};
  };
  if (result.state == State::oom) {
    std::string where = text("phase");
    if (number("bytes") > 0)
      where += formatted("%s%.1f MB wanted", where.empty() ? "" : ", ", static_cast<double>(number("bytes")) / 1e6);
    return "out of memory" + (where.empty() ? "" : " (" + where + ")");
  }
  if (result.state == State::crashed) {
    std::string who = number("rank") >= 0 ? concat("rank ", number("rank")) : "";
    const std::string how = number("signal") > 0 ? concat("signal ", number("signal"), ", ", text("signal_name"))
                                                 : concat("exit ", number("exit"));
    return "crashed (" + who + (who.empty() ? "" : ", ") + how + ")";
  }
  if (result.state == State::refused) return "refused: " + first_line(result.reason);
  if (result.state == State::nan) return "loss not finite";
  if (result.state == State::timeout) return "timeout";
  return "skipped";
}

std::vector<std::string> ranking_lines(const StudyRecord& study, const Analysis& analysis) {
  std::vector<std::string> lines;
  const bool of_speed = analysis.outcomes.empty();
  int place = 0;
  for (const size_t i : analysis.ranking) {
    const CellResult& result = analysis.cells[i];
    const std::string value = value_text(analysis, result.summary().mean);
    std::string line = formatted("%d. %s: ", ++place, label_of(*result.cell, study).c_str()) +
                       (of_speed ? value + " " + ranked_by(analysis) : ranked_by(analysis) + " " + value);
    line += result.cell->is_reference ? "; the reference" : "; " + against_text(result.compared(), of_speed);
    if (result.gate == Gate::not_comparable) line += "; another batch, so its losses are not compared";
    if (result.is_pareto) line += concat("; no cell is both ", of_speed ? "faster" : "better", " and smaller");
    lines.push_back(line);
  }
  const std::vector<std::string> notes = notes_of(study, analysis);
  lines.insert(lines.end(), notes.begin(), notes.end());
  return lines;
}

}  // namespace drivetrain::study
