// What a report says of runs that went side by side.
#include <map>
#include <set>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "study/report.h"

namespace drivetrain::study {
namespace {

std::string counted_text(const std::map<std::string, int>& counts) {
  std::vector<std::string> parts;
  for (const auto& [what, count] : counts) parts.push_back(count > 1 ? concat(what, " (", count, " times)") : what);
  return join(parts, "; ");
}

}  // namespace

std::string slots_text(const StudyRecord& study) {
  std::map<int64_t, std::set<std::string>> cores;  // by slot: a study that goes on may find others
  for (const CellRecord& cell : study.cells)
    for (const RunRecord& run : cell.runs)
      if (run.slot > 0) cores[run.slot].insert(run.cores);
  if (cores.empty()) return "";
  std::vector<std::string> list;
  for (const auto& [slot, all] : cores)
    list.push_back(concat("slot ", slot, ": cores ", join(std::vector<std::string>(all.begin(), all.end()), " or ")));
  return "Runs went side by side (" + join(list, "; ") +
         "): what cores share, such as the memory's bandwidth, they shared. What ran beside what is in report.html and "
         "runs.csv.";
}

std::string slots_html(const StudyRecord& study) {
  if (slots_text(study).empty()) return "";
  std::map<std::string, std::string> labels;
  for (const CellRecord& cell : study.cells) labels[cell.id] = label_of(cell, study);
  Table table{{"cell", "slots", "beside"}, {}, 3};
  for (const CellRecord& cell : study.cells) {
    std::map<std::string, int> slots, beside;
    for (const RunRecord& run : cell.runs) {
      if (run.slot > 0) ++slots[concat(run.slot)];
      for (const auto& [other, block] : run.beside) ++beside[labels.contains(other) ? labels.at(other) : other];
    }
    if (!slots.empty()) table.rows.push_back({labels[cell.id], counted_text(slots), counted_text(beside)});
  }
  return "<h2>What ran beside what</h2>" + html_of(table);
}

}  // namespace drivetrain::study
