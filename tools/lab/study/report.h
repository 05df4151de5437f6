// The report of a study: report.html, one file that holds all of it, and the same as CSV, JSON, Markdown and SVG.
#pragma once

#include <string>
#include <vector>

#include "study/analysis.h"

namespace drivetrain::study {

// Writes all files into the study's folder. Throws Error(io) if one cannot be written.
void write_report(const StudyRecord& study);
// report.html alone, without charts, of a study that runs: a browser loads it again and again.
void write_live_page(const StudyRecord& study);

// Parts of it.
std::vector<std::string> ranking_lines(const StudyRecord& study, const Analysis& analysis);  // in words
// report_answer.cpp: which cell is best, by how much, how sure.
std::vector<std::string> answer_of(const StudyRecord& study, const Analysis& analysis);
std::vector<std::string> notes_of(const StudyRecord& study, const Analysis& analysis);  // of these, without places
// report_slots.cpp; "" where runs had the host to themselves.
std::string slots_text(const StudyRecord& study);  // a sentence
std::string slots_html(const StudyRecord& study);  // what ran beside what
// csv.cpp
const char* gate_name(Gate gate);
std::string csv_text(const Analysis& analysis);                            // a row per cell, a column per factor
std::string runs_csv(const StudyRecord& study, const Analysis& analysis);  // a row per run
// tables.cpp
struct Table {
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
  size_t texts = 0;                // so many columns from the first are words, the others figures
  std::vector<std::string> ids{};  // of the cells that rows are of; empty: of none
};
Table ranking_table(const StudyRecord& study, const Analysis& analysis);  // what ranks first, then what has no place
std::string markdown_of(const Table& table);
std::string latex_of(const Table& table);  // a tabular, without packages
std::string html_of(const Table& table);
std::string json_text(const StudyRecord& study, const Analysis& analysis);
std::string markdown_text(const StudyRecord& study, const Analysis& analysis);
// report_effects.cpp; "" where there are none.
std::string effects_csv(const Analysis& analysis);
std::string effects_markdown(const StudyRecord& study, const Analysis& analysis);
std::string effects_html(const StudyRecord& study, const Analysis& analysis);
Value effects_value(const std::vector<Effect>& effects);
Value texts(const std::vector<std::string>& list);
struct Chart {
  std::string name, title, svg;  // "speed": the file speed.svg
};
std::string html_text(const StudyRecord& study, const Analysis& analysis, const std::vector<Chart>& charts,
                      const std::string& no_charts, bool live = false);
// Drawn by gnuplot; `why_not`: why there are none.
std::vector<Chart> charts_of(const StudyRecord& study, const Analysis& analysis, std::string& why_not);

std::string escaped(const std::string& text);  // for HTML
std::string numeric(const std::string& text);  // an HTML cell of figures
std::string csv_field(const std::string& text);

std::string for_page(std::string svg);  // with the page's colours, which may be dark

// The levels of a cell that not all cells share, "zero 2, recompute full".
std::string label_of(const CellRecord& cell, const StudyRecord& study);
// Its levels are all that it changes; others are rows with a name of their own or with further keys.
bool is_all_levels(const CellRecord& cell);
std::string state_text(const CellResult& result);  // "out of memory (hook attach, 179.4 MB)"
// How many repeats the study was to have, and how many runs of them have ended.
std::string repeats_text(const StudyRecord& study);
std::string rule_text(const Warmup& warmup);          // how a run's speed is found
std::string percent(double change);                   // "+3.1 %"
std::string change_text(double change, Scale scale);  // "+3.1 %", "x 12", or the difference itself
// "-1.2 % to +3.0 %"; words where n values leave it open by more than a factor of 2.
std::string interval_text(const Interval& interval, Scale scale, int n);
const char* verdict_text(Verdict verdict, bool of_speed);        // "faster", "better", "no difference shown"
std::string value_text(const Analysis& analysis, double value);  // of what places go by
std::string ranked_by(const Analysis& analysis);                 // "valid_loss", "tokens per rank and second"
bool varies(const StudyRecord& study, size_t factor);            // cells have several of its levels
bool is_of_ranks(const StudyRecord& study, size_t factor);       // each of its levels stands for one number of ranks
std::string speed_text(double tgs);                              // "12820", "98.37"
std::string megabytes_text(double bytes);                        // "98.4"; 0: ""

}  // namespace drivetrain::study
