// The ranking as a table with a column per factor, in Markdown, LaTeX and HTML.
#include <algorithm>
#include <cctype>
#include <set>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "study/report.h"

namespace drivetrain::study {
namespace {

using Columns = std::vector<std::string>;

std::string latex_escaped(const std::string& text) {
  std::string result;
  for (const char c : text)
    if (std::string("&%$#_{}").find(c) != std::string::npos)
      result += std::string("\\") + c;
    else if (c == '\\' || c == '~' || c == '^')
      result += c == '\\' ? "\\textbackslash{}" : c == '~' ? "\\textasciitilde{}" : "\\textasciicircum{}";
    else
      result += c;
  return result;
}

void add_ranked_figures(const CellResult& r, const Analysis& analysis, Columns& row) {
  const Summary& summary = r.summary();
  const Comparison& c = r.compared();
  const bool positive = analysis.scale == Scale::ratio && summary.confidence && summary.confidence->low > 0;
  const bool wide = positive && summary.confidence->high > 4 * summary.confidence->low;
  row.push_back(concat(summary.n)), row.push_back(value_text(analysis, summary.mean));
  row.push_back(
      !summary.confidence ? ""
      : wide ? interval_text({0, summary.confidence->high / summary.confidence->low - 1}, Scale::ratio, summary.n)
             : value_text(analysis, summary.confidence->low) + " to " + value_text(analysis, summary.confidence->high));
  row.push_back(r.cell->is_reference ? "reference" : c.n == 0 ? "" : change_text(c.change, c.scale));
  row.push_back(c.interval ? interval_text(*c.interval, c.scale, c.n) : "");
  row.push_back(c.paired_holm ? formatted("%.2g", *c.paired_holm) : "");
  for (size_t i = 1; i < r.outcomes.size(); ++i)
    row.push_back(r.outcomes[i].values.empty() ? "" : formatted("%.5g", r.outcomes[i].summary.mean));
  if (!analysis.outcomes.empty()) row.push_back(speed_text(r.speed.mean));
  row.push_back(megabytes_text(r.peak_bytes)), row.push_back(megabytes_text(r.tensor_bytes));
}

}  // namespace

Table ranking_table(const StudyRecord& study, const Analysis& analysis) {
  Table table;
  std::vector<size_t> factors;
  for (size_t f = 0; !study.cells.empty() && f < study.cells.front().levels.size(); ++f)
    if (varies(study, f)) factors.push_back(f);
  const bool names = std::any_of(study.cells.begin(), study.cells.end(),
                                 [](const CellRecord& cell) { return !cell.is_noise && !is_all_levels(cell); });
  table.head = {""};
  if (names || factors.empty()) table.head.push_back("cell");
  for (const size_t f : factors) table.head.push_back(study.cells.front().levels[f].first);
  table.texts = table.head.size();
  for (const char* name : {"n", "", "95 % interval", "against the reference", "95 % interval", "p, Holm"})
    table.head.push_back(*name ? name : analysis.outcomes.empty() ? "TGS" : analysis.outcomes.front().name());
  for (size_t i = 1; i < analysis.outcomes.size(); ++i) table.head.push_back(analysis.outcomes[i].name());
  if (!analysis.outcomes.empty()) table.head.push_back("TGS");
  table.head.push_back("peak MB"), table.head.push_back("tensors MB");
  const auto begin_row = [&](const CellResult& r, const std::string& place) {
    table.ids.push_back(r.cell->id);
    Columns row = {place};
    if (names || factors.empty()) row.push_back(r.cell->is_noise ? "A/A" : r.cell->id);
    for (const size_t f : factors) row.push_back(r.cell->levels[f].second);
    return row;
  };
  std::set<size_t> placed;
  for (const size_t i : analysis.ranking) {
    placed.insert(i);
    table.rows.push_back(begin_row(
        analysis.cells[i], concat(placed.size(), analysis.cells[i].cell->stopped.repeats > 0 ? ", stopped" : "")));
    add_ranked_figures(analysis.cells[i], analysis, table.rows.back());
  }
  for (size_t i = 0; i < analysis.cells.size(); ++i) {
    const CellResult& r = analysis.cells[i];
    if (placed.contains(i)) continue;
    table.rows.push_back(begin_row(r, r.cell->is_noise ? "A/A" : "-"));
    if (r.ok > 0 && !r.values().empty()) {
      add_ranked_figures(r, analysis, table.rows.back());
      if (r.gate == Gate::failed) table.rows.back()[0] = "other loss";
    } else {
      table.rows.back().push_back(concat(r.ok));
      // The reason is in a note below the table, which stays short enough to paste.
      const std::string state = state_text(r);
      table.rows.back().push_back(r.ok > 0 ? "no " + ranked_by(analysis) : state.substr(0, state.find(": ")));
    }
    table.rows.back().resize(table.head.size());
  }
  return table;
}

std::string markdown_of(const Table& table) {
  const auto line = [](const Columns& fields) {
    std::string text = "|";
    for (std::string field : fields) {
      for (size_t at = 0; (at = field.find('|', at)) != std::string::npos; at += 2) field.insert(at, "\\");
      text += " " + field + " |";
    }
    return text + "\n";
  };
  Columns rule;
  for (size_t i = 0; i < table.head.size(); ++i) rule.push_back(i < table.texts ? "---" : "---:");
  std::string text = line(table.head) + line(rule);
  for (const Columns& row : table.rows) text += line(row);
  return text;
}

std::string latex_of(const Table& table) {
  const auto line = [](const Columns& fields) {
    std::string text;
    for (size_t i = 0; i < fields.size(); ++i) text += (i > 0 ? " & " : "") + latex_escaped(fields[i]);
    return text + " \\\\\n";
  };
  std::string text = "\\begin{tabular}{" + std::string(table.texts, 'l') +
                     std::string(table.head.size() - table.texts, 'r') + "}\n\\hline\n" + line(table.head) +
                     "\\hline\n";
  for (const Columns& row : table.rows) text += line(row);
  return text + "\\hline\n\\end{tabular}\n";
}

std::string html_of(const Table& table) {
  constexpr size_t kWords = 24;  // characters: what is longer are words, which may take several lines
  const auto fields_of = [&](const Columns& fields, const std::string& tag) {
    std::string text;
    // Words behind which there is nothing take all of the row: no column is as wide as they are.
    size_t last = fields.size();
    while (last > 0 && fields[last - 1].empty()) --last;
    const bool words = tag == "td" && last > table.texts && last < fields.size() &&
                       std::any_of(fields[last - 1].begin(), fields[last - 1].end(),
                                   [](unsigned char c) { return std::isalpha(c) != 0; });
    for (size_t i = 0; i < (words ? last : fields.size()); ++i) {
      const bool spans = words && i + 1 == last;
      text += "<" + tag + (spans ? concat(" colspan=", fields.size() - i) : std::string()) +
              (spans || (tag == "td" && fields[i].size() > kWords) ? ">"
               : i < table.texts                                   ? " class=s>"
                                                                   : " class=n>") +
              escaped(fields[i]) + "</" + tag + ">";
    }
    return text + "</tr>\n";
  };
  std::string text = "<div class=wide><table class=sorts><thead><tr>" + fields_of(table.head, "th") + "</thead><tbody>";
  for (size_t i = 0; i < table.rows.size(); ++i)
    text += (i < table.ids.size() ? "<tr data-c=\"" + escaped(table.ids[i]) + "\">" : std::string("<tr>")) +
            fields_of(table.rows[i], "td");
  return text + "</tbody></table></div>\n";
}

}  // namespace drivetrain::study
