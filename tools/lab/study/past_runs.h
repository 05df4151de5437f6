// What a ledger's lines say to a study that goes on.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "study/design.h"
#include "study/ledger.h"

namespace drivetrain::study {

struct CellPlan;

bool is_event(const Value& line, const char* name);
// The last line that says what the study is: its first one, or that of its last growth. Throws Error(io) without one.
const Value& last_head(const std::vector<Value>& lines);
// Cells that have been planned, by id; a later line of a cell says the same.
std::map<std::string, const Value*> known_cells(const std::vector<Value>& lines);
// Runs that ended, by id; those that were skipped, or that others disturbed more than `allow_load` allows, come again.
std::map<std::string, State> ended_runs(const std::vector<Value>& lines, double allow_load = 0);
// Cells that stopped early, whatever the study says now.
std::set<std::string> stopped_cells(const std::vector<Value>& lines);
// Mean seconds of the runs that have ended in this folder; 0: none.
double mean_wall_s(const std::string& folder);

// The name of one run: of its cell's config, its place in the study and the build.
std::string run_id_of(const std::string& config, const std::string& cell, uint64_t seed, int64_t block,
                      const std::string& build);

// A study may grow by repeats, levels, rows and what only reports read; all that its runs have in common stays. Throws
// Error(config) with what differs. `path`: of the study's file.
void check_grown(const Value& before, const Value& now, const std::string& path);
// Every cell that the ledger knows is in the study still and would run as it did: throws Error(config) if not.
void check_known_cells(const std::vector<Value>& lines, const std::vector<Cell>& cells,
                       const std::vector<CellPlan>& plans, const std::string& path);

}  // namespace drivetrain::study
