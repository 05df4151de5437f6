// The report as one page with nothing to load. Its script adds to it; without one all of it is there.
#include <algorithm>
#include <cmath>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "study/environment.h"
#include "study/report.h"
#include "study/report_script.h"

namespace drivetrain::study {
namespace {

constexpr const char* kStyle = R"css(
:root{color-scheme:light dark;--ink:#111;--paper:#fff;--soft:#f2f4f6;--grid:#9aa4ae;--bar:#2a6fb0;--bad:#b04a2a;--good:#2a9050}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8ea;--paper:#14171a;--soft:#20252a;--grid:#6d7780;--bar:#6cb0ee;--bad:#ee8a66;--good:#5fce8a}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:72rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem;margin-bottom:0} h2{font-size:1.15rem;margin-top:2rem}
table{border-collapse:collapse;width:100%;font-size:.87rem} .wide{overflow-x:auto;margin-right:min(0px,calc(37rem - 50vw))} .wide table{width:auto;min-width:min(100%,70rem)}
th,td{text-align:left;padding:.25rem .6rem;border-bottom:1px solid var(--soft);vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.paper{display:none} .answer{font-size:1.05rem;margin:.4rem 0} tr.ref{font-weight:600} tr.bad td:first-child{background:repeating-linear-gradient(45deg,transparent 0 6px,var(--soft) 6px 12px)}
code{font:.8rem ui-monospace,monospace;overflow-wrap:anywhere} tr.how td{padding-top:0;opacity:.75}
.faster{color:var(--good)} .slower,.failed{color:var(--bad)} figure{margin:1rem 0} svg{width:100%;height:auto} li{margin:.2rem 0}
tr.main td{border-bottom:0} td.s{white-space:nowrap}
table.sorts th{cursor:pointer} th[aria-sort]::after{content:" \25B2";font-size:.7em} th[aria-sort=descending]::after{content:" \25BC"}
.filter{display:flex;flex-wrap:wrap;gap:.3rem 1.2rem;align-items:center} .filter select,.filter input{font:inherit;max-width:16rem}
.legend span{margin-right:1.2rem;display:inline-block} .facets{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(26rem,100%),1fr));gap:1rem}
.facets figure{margin:0;content-visibility:visible} .facets svg{max-width:44rem;font-family:system-ui,sans-serif} figcaption{font-weight:600}
@media(max-width:40rem){body{margin:1rem auto;padding:0 .6rem} th,td{padding:.2rem .35rem} table{font-size:.8rem}
 figure.rows{overflow-x:auto} figure.rows svg{min-width:44rem}}
@media screen{figure,.wide{content-visibility:auto;contain-intrinsic-size:auto 40rem}}
@page{size:A4 landscape;margin:12mm}
@media print{:root{color-scheme:light;--ink:#000;--paper:#fff;--soft:#f2f4f6;--grid:#888;--bar:#2a6fb0;--bad:#b04a2a;--good:#2a9050}
 body{font-size:9pt;max-width:none;margin:0} tr,figure,h2{break-inside:avoid} h2{break-after:avoid} .wide{overflow:visible;margin:0} .wide table{width:100%}
 table{font-size:7pt} td.n,th.n{white-space:normal} figure svg{max-height:165mm}
 .filter,#tools h2,.detail,.charts section:nth-of-type(n+3){display:none} .paper{display:block}
 .charts{display:grid;grid-template-columns:1fr 1fr;gap:0 6mm} .charts section{break-inside:avoid} .end{columns:2}
 td,th{padding:.02rem .3rem;line-height:1.2} .charts svg{max-height:100mm}
 .charts h2,.charts figure{margin:1mm 0} .facets{grid-template-columns:repeat(3,1fr)} h2{margin-top:3mm} li{margin:0}}
)css";

// What the script finds the rows of a cell by.
std::string of_cell(const CellRecord& cell) { return " data-c=\"" + escaped(cell.id) + "\""; }

std::string begin_table(const std::string& head) {
  return "<div class=wide><table class=sorts><thead><tr>" + head + "</tr></thead>";
}
std::string table_of_rows(const std::string& head, const std::string& rows) {
  return begin_table(head) + "<tbody>" + rows + "</tbody></table></div>";
}

std::string difference(const CellResult& r) {
  if (r.cell->is_reference) return "<td>reference</td>";
  if (r.ok == 0) return "<td></td>";
  const Comparison& c = r.against;
  const char* words = verdict_text(c.verdict, true);
  std::string text = change_text(c.change, c.scale);
  if (c.interval) text += " (" + interval_text(*c.interval, c.scale, c.n) + ")";
  if (c.paired_holm) text += formatted(", p %.2g", *c.paired_holm);
  if (c.welch_holm) text += formatted("; Welch %.2g", *c.welch_holm);
  if (c.mann_whitney_holm) text += formatted("; Mann-Whitney %.2g", *c.mann_whitney_holm);
  return std::string("<td><span class='") + words + "'>" + words + "</span> " + text + "</td>";
}

std::string cell_rows(const CellResult& r, const StudyRecord& study) {
  std::string row = "<tbody" + of_cell(*r.cell) + "><tr class='main" + (r.cell->is_reference ? " ref" : "") +
                    (r.ok == 0 ? " bad" : "") + "'>";
  row += "<td>" + escaped(label_of(*r.cell, study)) + "</td>";
  if (r.ok == 0) {
    row += "<td colspan=9>" + escaped(state_text(r)) + "</td></tr>";
  } else {
    row += numeric(concat(r.ok)) + numeric(speed_text(r.speed.mean));
    row += numeric(
        r.speed.confidence ? speed_text(r.speed.confidence->low) + " to " + speed_text(r.speed.confidence->high) : "");
    row += numeric(r.speed.cv ? formatted("%.1f %%", 100 * *r.speed.cv) : "") + difference(r);
    row += numeric(formatted("%.4g", 1e3 * r.step_s.median)) + numeric(formatted("%.1f", r.peak_bytes / 1e6)) +
           numeric(megabytes_text(r.tensor_bytes));
    const std::string loss = r.gate == Gate::failed ? formatted("<span class=failed>differs: %.2g at step %lld</span>",
                                                                r.loss_difference, static_cast<long long>(r.loss_step))
                             : r.gate == Gate::passed ? formatted("as the reference's (%.1g)", r.loss_difference)
                             : r.gate == Gate::not_comparable ? "another batch"
                                                              : "not compared";
    row += "<td>" + loss + (r.never_steady ? "; never steady" : "") + "</td></tr>";
  }
  return row + "\n<tr class=how><td colspan=10><code>" + escaped(r.cell->reproduce) + "</code></td></tr></tbody>\n";
}

// "12.3 +- 0.4", as tables of measured speeds have it; of one run without a deviation.
std::string with_deviation(const Summary& summary) {
  return speed_text(summary.mean) + (summary.sd ? formatted(" &plusmn; %.2g", *summary.sd) : "");
}

std::string figures_rows(const CellResult& r, const StudyRecord& study) {
  if (r.ok == 0) return "";
  std::string row = "<tr" + of_cell(*r.cell) + "><td>" + escaped(label_of(*r.cell, study)) + "</td>";
  for (const double value : {r.speed.mean, r.tgs_real, r.tgs_loss}) row += numeric(speed_text(value));
  row += numeric(with_deviation(r.samples_per_s));
  row += numeric(formatted("%.4g / %.4g / %.4g", 1e3 * r.step_p10, 1e3 * r.step_median, 1e3 * r.step_p90));
  row += numeric(formatted("%.4g", 1e3 * r.first_five_s)) + numeric(formatted("%.2f", r.startup_s));
  row += numeric(r.mfu ? formatted("%.1f %%", 100 * *r.mfu) : "") +
         numeric(r.hfu ? formatted("%.1f %%", 100 * *r.hfu) : "");
  return row + "</tr>\n";
}

std::string tflops_table(const StudyRecord& study, const Analysis& analysis) {
  std::string head, rows, notes;
  for (const CellResult& r : analysis.cells) {
    if (r.ok == 0) continue;
    if (head.empty())
      for (const Convention& one : r.tflops) {
        head += "<th class=n>" + one.name + "</th>";
        notes += "<li><b>" + one.name + "</b>: " + one.about + "</li>";
      }
    rows += "<tr" + of_cell(*r.cell) + "><td>" + escaped(label_of(*r.cell, study)) + "</td><td class=n>" +
            (r.cell->recomputes ? "4" : "3") + "</td>";
    for (const Convention& one : r.tflops)
      rows += numeric(std::isfinite(one.flops) ? formatted("%.4g", one.flops) : "");
    rows += "</tr>\n";
  }
  return "<h2>TFLOPS of a rank, by each published convention</h2>" +
         table_of_rows("<th>cell</th><th class=n>c</th>" + head, rows) + "<ul>" + notes + "</ul>";
}

std::string memory_table(const StudyRecord& study, const Analysis& analysis) {
  std::vector<std::string> classes;
  std::string rows;
  for (int pass = 0; pass < 2; ++pass)
    for (const CellResult& r : analysis.cells) {
      const auto run = std::find_if(r.cell->runs.begin(), r.cell->runs.end(),
                                    [](const RunRecord& one) { return one.state == State::ok; });
      const Value* const peaks = run == r.cell->runs.end() ? nullptr : run->end.find("peak_memory");
      if (!peaks) continue;
      if (pass == 1)
        rows += "<tr" + of_cell(*r.cell) + "><td>" + escaped(label_of(*r.cell, study)) + "</td>" +
                numeric(formatted("%.1f", r.cell->planned_bytes / 1e6));
      if (pass == 0)
        for (const Value::Member& m : peaks->members()) {
          if (std::find(classes.begin(), classes.end(), m.key) == classes.end()) classes.push_back(m.key);
        }
      else
        for (const std::string& name : classes)
          rows += numeric(peaks->find(name) ? formatted("%.1f", peaks->find(name)->as_double() / 1e6) : "");
      if (pass == 1) rows += "</tr>\n";
    }
  if (classes.empty()) return "";
  std::string head;
  for (const std::string& name : classes) head += "<th class=n>" + escaped(name) + "</th>";
  return "<h2>Peak memory of the largest rank, MB</h2>" +
         table_of_rows("<th>cell</th><th class=n>planned</th>" + head, rows);
}

// Shares of a step, and energy where a counter exists.
std::string time_table(const StudyRecord& study, const Analysis& analysis) {
  std::vector<std::string> parts;
  bool energy = false;
  for (const CellResult& r : analysis.cells) energy |= r.energy_j.has_value();
  for (const char* part : kPartOrder)
    if (std::any_of(analysis.cells.begin(), analysis.cells.end(),
                    [&](const CellResult& r) { return r.part_shares.contains(part); }))
      parts.push_back(part);
  if (parts.empty() && !energy) return "";
  std::string head = "<th>cell</th>", rows;
  for (const std::string& part : parts) head += "<th class=n>" + escaped(part) + "</th>";
  if (!parts.empty()) head += "<th class=n>communication</th><th class=n>of the rank with most</th>";
  if (energy) head += "<th class=n>J per 1000 tokens</th><th class=n>J of a run</th>";
  for (const CellResult& r : analysis.cells) {
    if (r.ok == 0) continue;
    rows += "<tr" + of_cell(*r.cell) + "><td>" + escaped(label_of(*r.cell, study)) + "</td>";
    for (const std::string& part : parts) {
      const auto share = r.part_shares.find(part);
      rows += numeric(share == r.part_shares.end() ? "" : formatted("%.1f %%", 100 * share->second));
    }
    if (!parts.empty())
      for (const double share : {r.communication_share, r.communication_share_most})
        rows += numeric(r.part_shares.empty() ? "" : formatted("%.1f %%", 100 * share));
    if (energy)
      for (const auto& joules : {r.joules_per_1k_tokens, r.energy_j})
        rows += numeric(joules ? formatted("%.4g", *joules) : "");
    rows += "</tr>\n";
  }
  return "<h2>Shares of a step</h2>" + table_of_rows(head, rows) +
         "<p>Means over ranks and repeats, without the first step. Communication lies within the parts: "
         "it is "
         "the time in calls of the communicator and in waits for them, for slower ranks too.</p>";
}

std::string environment_block(const StudyRecord& study) {
  std::string text = "<h2>Environment</h2><table>";
  text += "<tr><td>began</td><td>" + escaped(study.began) + "</td></tr>";
  for (const Value::Member& m : study.environment.members())
    text += "<tr><td>" + escaped(m.key) + "</td><td>" +
            escaped(m.value.is_string() ? m.value.as_string() : m.value.to_json()) + "</td></tr>";
  return text + "</table>";
}

}  // namespace

std::string html_text(const StudyRecord& study, const Analysis& analysis, const std::vector<Chart>& charts,
                      const std::string& no_charts, bool live) {
  std::string page =
      "<!doctype html>\n<html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>" +
      std::string(live ? "<meta http-equiv=refresh content=5>" : "") + "<title>" + escaped(study.name) +
      "</title><style>" + kStyle + "</style>\n<body><h1>" + escaped(study.name) + "</h1>\n";
  if (live)
    page += "<p><b>The study runs.</b> This page is of " + time_now() +
            " and loads itself again every 5 seconds until the study has ended.</p>\n";
  for (const std::string& line : answer_of(study, analysis)) page += "<p class=answer>" + escaped(line) + "</p>\n";
  page += concat("<p>", repeats_text(study), " ", escaped(rule_text(study.warmup)),
                 study.trim > 0
                     ? formatted(" Of the repeats' differences %g %% at each end are set aside.", 100 * study.trim)
                     : "",
                 " Differences are paired by repeat, with Holm's correction over all cells. ", escaped(study.aliasing),
                 "</p>\n<h2>Ranking by ", escaped(ranked_by(analysis)), "</h2>\n",
                 html_of(ranking_table(study, analysis)), "<ul>");
  for (const std::string& line : notes_of(study, analysis)) page += "<li>" + escaped(line) + "</li>\n";
  page += "</ul>\n";
  page += "<div id=tools></div>\n";
  page += "<div class=charts>";
  for (const Chart& chart : charts)
    page += "<section><h2>" + escaped(chart.title) + "</h2><figure class=rows>" + for_page(chart.svg) +
            "</figure></section>\n";
  page += "</div>\n";
  if (!no_charts.empty()) page += "<p>No charts: " + escaped(no_charts) + "</p>\n";
  if (!charts.empty())
    page +=
        "<p>Bars: means of runs with their 95 % intervals; dots: every run; crosses with words: cells that have none. "
        "Curves: means of repeats, with all of them in the band.</p>\n";
  page +=
      "<p class=paper>On paper without the tables of all cells and further charts: the page on a screen has them.</p>";
  page += "<div class=detail><h2>Cells</h2>" +
          begin_table(
              "<th>cell</th><th class=n>runs</th><th class=n>TGS</th><th class=n>95 % interval</th><th "
              "class=n>variation</th>"
              "<th>speed against the reference</th><th class=n>ms per step</th><th class=n>peak MB</th><th "
              "class=n>tensors MB</th><th>loss</th>") +
          "\n";
  for (const CellResult& r : analysis.cells) page += cell_rows(r, study);
  std::string figures;
  for (const CellResult& r : analysis.cells) figures += figures_rows(r, study);
  page += "</table></div>\n<h2>Figures</h2>" +
          table_of_rows(
              "<th>cell</th><th class=n>TGS padded</th><th class=n>TGS real</th><th class=n>TGS loss</th>"
              "<th class=n>samples/s &plusmn; standard deviation</th><th class=n>ms per step: 10 %, median, 90 "
              "%</th><th class=n>first five steps, "
              "ms</th>"
              "<th class=n>start-up s</th><th class=n>MFU</th><th class=n>HFU</th>",
              figures) +
          "\n" + time_table(study, analysis) + memory_table(study, analysis) + tflops_table(study, analysis) +
          slots_html(study) + "</div>\n";
  page += "<div class=end>" + effects_html(study, analysis) + environment_block(study) + "</div>\n";
  return page + page_data(study, analysis) + page_script() + "</html>\n";
}

}  // namespace drivetrain::study
