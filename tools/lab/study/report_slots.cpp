// What a report says of runs that went side by side.
#include <algorithm>
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

namespace {

// Of runs that were tasks of a cluster: where they were.
std::string cluster_text(const StudyRecord& study) {
  std::map<std::string, int> hosts;
  for (const CellRecord& cell : study.cells)
    for (const RunRecord& run : cell.runs)
      if (run.end.find("job") && run.end.find("host")) ++hosts[run.end.find("host")->as_string()];
  if (hosts.empty()) return "";
  std::vector<std::string> list;
  for (const auto& [host, runs] : hosts) list.push_back(concat(host, " (", runs, runs == 1 ? " run)" : " runs)"));
  return "Runs were tasks of SLURM on " + join(list) +
         (hosts.size() > 1 ? ": speeds are those of several hosts, and compare cells only where the hosts are alike."
                           : ".");
}

}  // namespace

std::string slots_text(const StudyRecord& study) {
  if (const std::string cluster = cluster_text(study); !cluster.empty()) return cluster;
  std::map<int64_t, std::set<std::string>> places;  // by slot: a study that goes on may find others
  bool on_hosts = false;
  for (const CellRecord& cell : study.cells)
    for (const RunRecord& run : cell.runs)
      if (run.slot > 0) {
        on_hosts |= !run.hosts.empty();
        places[run.slot].insert(run.hosts.empty() ? "cores " + run.cores : "hosts " + run.hosts);
      }
  if (places.empty()) return "";
  std::vector<std::string> list;
  for (const auto& [slot, all] : places)
    list.push_back(concat("slot ", slot, ": ", join(std::vector<std::string>(all.begin(), all.end()), " or ")));
  if (list.size() == 1 && on_hosts) return "Runs were on " + *places.begin()->second.begin() + ".";
  return "Runs went side by side (" + join(list, "; ") +
         (on_hosts ? "): speeds are those of several hosts, and compare cells only where the hosts are alike; what the "
                     "hosts share, such as the network, they shared."
                   : "): what cores share, such as the memory's bandwidth, they shared.") +
         " What ran beside what is in report.html and runs.csv.";
}

std::string slots_html(const StudyRecord& study) {
  const auto in_slot = [](const RunRecord& run) { return run.slot > 0; };
  if (std::none_of(study.cells.begin(), study.cells.end(),
                   [&](const CellRecord& cell) { return std::any_of(cell.runs.begin(), cell.runs.end(), in_slot); }))
    return "";
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
