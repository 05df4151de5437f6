// The cells of a study as the page's script takes them.
#include <algorithm>
#include <cstdlib>
#include <map>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "study/report.h"
#include "study/report_script.h"

namespace drivetrain::study {
namespace {

Value rounded(double value) { return Value(std::strtod(formatted("%.6g", value).c_str(), nullptr)); }

Value summary_of_page(const Summary& summary) {
  if (summary.n == 0) return {};
  Value value = Value::array();
  const Interval interval = summary.confidence.value_or(Interval{summary.mean, summary.mean});
  for (const double one : {summary.mean, interval.low, interval.high}) value.items().push_back(rounded(one));
  value.items().push_back(int64_t{summary.n});
  return value;
}

Value one_value(double value, int n) {
  if (value <= 0) return {};
  Value list = Value::array();
  for (int i = 0; i < 3; ++i) list.items().push_back(rounded(value));
  list.items().push_back(int64_t{n});
  return list;
}

Value figures_of_cell(const CellResult& r) {
  Value list = Value::array();
  for (const OutcomeResult& outcome : r.outcomes) list.items().push_back(summary_of_page(outcome.summary));
  list.items().push_back(summary_of_page(r.speed)), list.items().push_back(summary_of_page(r.samples_per_s));
  list.items().push_back(one_value(1e3 * r.step_median, r.ok)),
      list.items().push_back(one_value(r.peak_bytes / 1e6, r.ok)),
      list.items().push_back(one_value(r.tensor_bytes / 1e6, r.ok));
  return list;
}

// What takes a cell out of a figure's line: how it ended, or another loss.
std::string page_state(const CellResult& r) {
  if (r.ok == 0) return state_text(r);
  return r.gate == Gate::failed ? "another loss than the reference's" : "";
}

Value cell_of_page(const CellResult& r, const StudyRecord& study, const CellRecord& reference) {
  Value value = Value::object(), levels = Value::array();
  for (const auto& [factor, level] : r.cell->levels) levels.items().push_back(level);
  value.set("id", r.cell->id), value.set("label", label_of(*r.cell, study)), value.set("levels", std::move(levels));
  value.set("ranks", r.cell->world_size), value.set("noise", r.cell->is_noise), value.set("why", page_state(r));
  value.set("own", !is_all_levels(*r.cell)), value.set("differs", difference_text(*r.cell, reference));
  value.set("figures", figures_of_cell(r));
  return value;
}

// Keys and values of what a launch adds to the base.
std::map<std::string, std::string> changes_in(const CellRecord& cell) {
  std::map<std::string, std::string> changes;
  for (const std::string& one : cell.sets) {
    const size_t equal = one.find('=');
    changes[one.substr(0, equal)] = equal == std::string::npos ? "" : one.substr(equal + 1);
  }
  changes["world_size"] = concat(cell.world_size);
  return changes;
}

// A page's script ends at the first "</script", wherever it stands.
std::string for_script(std::string json) {
  for (size_t at = 0; (at = json.find('<', at)) != std::string::npos; at += 6) json.replace(at, 1, "\\u003c");
  return json;
}

}  // namespace

std::string difference_text(const CellRecord& cell, const CellRecord& reference) {
  if (cell.is_noise) return "nothing: the reference again";
  const std::map<std::string, std::string> own = changes_in(cell), base = changes_in(reference);
  std::vector<std::string> list;
  for (const auto& [key, value] : own)
    if (const auto other = base.find(key); other == base.end())
      list.push_back(key + " " + value);
    else if (other->second != value)
      list.push_back(key + " " + value + " instead of " + other->second);
  for (const auto& [key, value] : base)
    if (!own.contains(key)) list.push_back("no " + key + " (" + value + ")");
  return list.empty() ? "nothing" : join(list);
}

std::string page_data(const StudyRecord& study, const Analysis& analysis) {
  if (analysis.cells.empty()) return "";
  Value data = Value::object(), factors = Value::array(), figures = Value::array(), cells = Value::array();
  for (size_t f = 0; !study.cells.empty() && f < study.cells.front().levels.size(); ++f) {
    Value factor = Value::object();
    factor.set("name", study.cells.front().levels[f].first), factor.set("varies", varies(study, f));
    factor.set("ranks", is_of_ranks(study, f));
    factors.items().push_back(std::move(factor));
  }
  const auto add = [&](const std::string& name, bool higher) {
    Value figure = Value::object();
    figure.set("name", name), figure.set("higher", higher);
    figures.items().push_back(std::move(figure));
  };
  for (const Outcome& outcome : analysis.outcomes) add(outcome.name(), outcome.higher);
  add("TGS", true), add("samples/s", true), add("ms per step", false), add("peak MB", false), add("tensors MB", false);
  const auto reference = std::find_if(analysis.cells.begin(), analysis.cells.end(),
                                      [](const CellResult& r) { return r.cell->is_reference; });
  const CellRecord& base = *(reference == analysis.cells.end() ? analysis.cells.begin() : reference)->cell;
  for (const CellResult& r : analysis.cells) cells.items().push_back(cell_of_page(r, study, base));
  data.set("factors", std::move(factors)), data.set("figures", std::move(figures)), data.set("cells", std::move(cells));
  return "<script type='application/json' id='study'>" + for_script(printable_json(data.to_json())) + "</script>\n";
}

}  // namespace drivetrain::study
