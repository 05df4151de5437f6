// The words that all forms of the report share.
#include <cmath>

#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "study/design.h"
#include "study/report.h"

namespace drivetrain::study {
namespace {

bool varies(const StudyRecord& study, size_t factor) {
  for (const CellRecord& cell : study.cells)
    if (cell.levels[factor].second != study.cells.front().levels[factor].second) return true;
  return false;
}

std::string against_text(const CellResult& result) {
  const Comparison& c = result.against;
  if (c.verdict == Verdict::untested)
    return formatted("%s; one repeat, or too few, says nothing about chance", percent(c.change).c_str());
  const std::string range =
      formatted("%s, 95 %% interval %s to %s, n = %d, p = %.2g after Holm's correction", percent(c.change).c_str(),
                percent(c.interval->low).c_str(), percent(c.interval->high).c_str(), c.n, *c.paired_holm);
  if (c.verdict == Verdict::no_difference) return "no difference shown (" + range + ")";
  return std::string(c.verdict == Verdict::faster ? "faster" : "slower") + " than the reference (" + range + ")";
}

std::string sensitivity_text(const Sensitivity& s) {
  return formatted(
      "Repeats: the A/A pair varies by %.2g %% from repeat to repeat (n = %d). To be shown with 80 %% power "
      "after Holm's correction, a difference of 1 %% needs %lld repeats, of 3 %% %lld, of 10 %% %lld; "
      "%d repeats show %.2g %%.",
      100 * s.sd, s.n, static_cast<long long>(s.needed(0.01)), static_cast<long long>(s.needed(0.03)),
      static_cast<long long>(s.needed(0.1)), s.n, 100 * s.shown());
}

}  // namespace

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

std::string repeats_text(const StudyRecord& study) {
  size_t ended = 0;
  for (const CellRecord& cell : study.cells) ended += cell.runs.size();
  const auto of = [&](int64_t repeats) { return study.cells.size() * static_cast<size_t>(repeats); };
  const std::string cells = concat(study.cells.size(), " cells, ");
  if (study.until <= 0)
    return concat(cells, study.repeats, study.repeats == 1 ? " repeat" : " repeats", " each; ", ended, " of ",
                  of(study.repeats), " runs have ended.");
  const std::string rule = concat(cells, "up to ", study.repeats, " repeats each, until a difference of ",
                                  100 * study.until, " % would be shown; ");
  if (study.enough > 0) return concat(rule, study.enough, " were enough, and the study has ended.");
  return concat(rule, ended, " of at most ", of(study.repeats), " runs have ended.");
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
  int place = 0;
  for (const size_t i : analysis.ranking) {
    const CellResult& result = analysis.cells[i];
    std::string line = formatted("%d. %s: %s tokens per rank and second", ++place,
                                 label_of(*result.cell, study).c_str(), speed_text(result.speed.mean).c_str());
    line += result.cell->is_reference ? "; the reference" : "; " + against_text(result);
    if (result.gate == Gate::not_comparable) line += "; another batch, so its losses are not compared";
    if (result.is_pareto) line += "; no cell is both faster and smaller";
    lines.push_back(line);
  }
  if (study.trim > 0)
    lines.push_back(
        formatted("Places go by the differences to the reference with %g %% of the repeats set aside at each "
                  "end, and so do effects; speeds are means of all repeats.",
                  100 * study.trim));
  for (const CellResult& result : analysis.cells) {
    const std::string name = label_of(*result.cell, study);
    if (result.gate == Gate::failed)
      lines.push_back(
          formatted("Not ranked: %s computes something else: at step %lld its loss differs from the reference's "
                    "by %.2g of it, allowed are %.2g (%s)",
                    name.c_str(), static_cast<long long>(result.loss_step), result.loss_difference, study.gate,
                    percent(result.against.change).c_str()));
    else if (result.ok == 0)
      lines.push_back("Not ranked: " + name + ": " + state_text(result));
  }
  if (analysis.noise_floor)
    lines.push_back(
        formatted("Noise floor: the reference against itself differs by up to %.1f %%; smaller differences "
                  "say nothing.",
                  100 * *analysis.noise_floor));
  if (analysis.sensitivity) lines.push_back(sensitivity_text(*analysis.sensitivity));
  return lines;
}

}  // namespace drivetrain::study
