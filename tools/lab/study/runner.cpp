#include "study/runner.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <drivetrain/error.h>

#include "base/printable.h"
#include "drivetrain/toolkit/text.h"
#include "study/analysis.h"
#include "study/cell_run.h"
#include "study/cell_time.h"
#include "study/environment.h"
#include "study/interrupts.h"
#include "study/limits.h"
#include "study/measure.h"
#include "study/past_runs.h"
#include "study/plan_folder.h"
#include "study/plan_table.h"
#include "study/progress.h"
#include "study/records.h"
#include "study/report.h"
#include "study/study_begin.h"

namespace drivetrain::study {
namespace {

namespace fs = std::filesystem;

class Runner {
 public:
  Runner(const StudyFile& study, const RunRequest& request)
      : study_(study),
        request_(request),
        design_(design_of(study)),
        build_(build_of(request.program)),
        progress_(study.name, request.plan_only ? -1 : STDOUT_FILENO) {}

  int plan() {
    const PlanFolder folder(study_.output_dir);  // what an inline base is written into goes again
    base_ = base_file(study_, study_.output_dir, fs::exists(study_.output_dir + "/ledger.jsonl"));
    const Questions questions;
    plans_ = Planner(study_, questions, base_).plan(design_.cells);
    const std::string& hardware = request_.hardware.empty() ? study_.hardware : request_.hardware;
    if (!hardware.empty()) plan_times(plans_, questions, base_, hardware);
    if (!request_.json) tell_limits();
    const auto form = request_.json ? plan_json : plan_text;
    const std::string text = form(study_, design_, plans_, mean_wall_s(study_.output_dir));
    std::cout << (request_.json ? printable_json(text) : printable(text));
    return 0;
  }

  int run() {
    Ledger ledger(study_.output_dir);
    ledger_ = &ledger;
    lines_ = ledger.lines();
    begin();
    plan_cells();
    run_turns();
    write_report(records_of(read_ledger(study_.output_dir), study_.output_dir));
    say("report: " + study_.output_dir + "/report.html");
    return Interrupts::count() > 0 && left_ > 0 ? 128 + Interrupts::last() : 0;
  }

 private:
  void say(const std::string& text) { progress_.line(text); }

  void begin() {
    if (ledger_->cut_line() > 0)
      say(concat("line ", ledger_->cut_line(), " of the ledger is cut, as by a crash: that run is done again"));
    head_ = head_of(study_, design_, build_);
    const bool is_new = ledger_->is_new();
    if (is_new) {
      add(head_);
    } else if (request_.grow) {
      check_grown(last_head(lines_), head_, study_.path);
      grows_ = !(*last_head(lines_).find("study") == *head_.find("study"));
    } else if (request_.resume) {
      check_same(last_head(lines_), head_, study_.path);
    } else {
      throw fail(
          ErrorCode::config, one_line(study_.output_dir), " holds a study already, and nothing is overwritten\n",
          "   go on with it: --resume, or --grow with more repeats, levels or rows; or choose another \"output_dir\"");
    }
    base_ = base_file(study_, study_.output_dir, !is_new);
  }

  void add(const Value& line) {
    ledger_->add(line);
    lines_.push_back(line);
  }

  void plan_cells() {
    const std::map<std::string, const Value*> known = known_cells(lines_);
    const bool all_known = std::all_of(design_.cells.begin(), design_.cells.end(),
                                       [&](const Cell& cell) { return known.contains(cell.id); });
    if (all_known && !request_.grow) {
      for (const Cell& cell : design_.cells) plans_.push_back(plan_of_launch(*known.at(cell.id)));
      return;
    }
    say(concat(design_.cells.size(), " cells: each is planned before any runs"));
    const Questions questions;
    plans_ = Planner(study_, questions, base_).plan(design_.cells);
    if (!study_.hardware.empty()) try {
        plan_times(plans_, questions, base_, study_.hardware);
      } catch (const Error& e) {  // the cells run without planned times, too
        say(first_line(e.what()));
      }
    check_known_cells(lines_, design_.cells, plans_, study_.path);
    tell_limits();
    std::vector<Value> news;
    for (size_t i = 0; i < plans_.size(); ++i)
      if (!known.contains(design_.cells[i].id))
        news.push_back(cell_line(design_.cells[i], plans_[i], study_, reproduce_line(plans_[i], base_, "")));
    if (grows_) tell_growth(news.size());
    for (const Value& line : news) add(line);
  }

  // What a plan says before the first run needs no run to find out.
  void tell_limits() {
    const double memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
    for (const std::string& line : expected_failures(study_, design_.cells, plans_, memory)) say(line);
  }

  // From here on the study is this one.
  void tell_growth(size_t cells) {
    Value ids = Value::array();
    for (const Cell& cell : design_.cells) ids.items().push_back(cell.id);
    head_.set("event", "grown"), head_.set("cells", std::move(ids));
    add(head_);
    say(concat("the study grows: ", cells, " further cells, ", study_.repeats.most, " repeats"));
  }

  std::string run_id(const Turn& turn) const {
    return run_id_of(plans_[turn.cell].config, design_.cells[turn.cell].id, study_.seed, turn.block, build_);
  }

  void run_turns() {
    const std::vector<Turn> order = order_of(design_.cells.size(), study_.repeats.most, study_.seed);
    const std::map<std::string, State> done = ended_runs(lines_);
    left_ = static_cast<int64_t>(
        std::count_if(order.begin(), order.end(), [&](const Turn& turn) { return !done.contains(run_id(turn)); }));
    progress_.begin_study(design_.cells.size(), static_cast<int64_t>(order.size()), study_.repeats.until > 0);
    for (const Turn& turn : order)
      if (const auto end = done.find(run_id(turn)); end != done.end()) progress_.ended(turn.cell, end->second);
    if (!done.empty())
      say(concat("goes on: ", order.size() - static_cast<size_t>(left_), " of ", at_most(), order.size(),
                 " runs are done"));
    for (int64_t block = -1; const Turn& turn : order) {
      const int64_t block_before = std::exchange(block, turn.block);  // another one: all blocks so far are whole
      if (done.contains(run_id(turn))) continue;
      if (turn.block != block_before && shows_enough(turn.block)) return end_early(turn.block);
      if (Interrupts::count() > 0) {
        say(concat("stopped by signal ", Interrupts::last(), " with ", at_most(), left_,
                   " runs left; --resume goes on"));
        return;
      }
      Value line = line_of(turn);
      if (!plans_[turn.cell].refusal.empty())
        refuse(line, turn);
      else if (study_.budget_s > 0 && spent_s_ >= study_.budget_s)
        skip(line, turn);
      else
        run_one(std::move(line), turn);
      --left_;
    }
  }

  // By the A/A pair's own repeats, which do not know what the other cells have shown.
  bool shows_enough(int64_t blocks) {
    if (study_.repeats.until <= 0 || blocks < study_.repeats.least) return false;
    const Analysis analysis = analysis_of(records_of(read_ledger(study_.output_dir), study_.output_dir));
    if (!analysis.sensitivity || analysis.sensitivity->n < study_.repeats.least) return false;
    const double shown = analysis.sensitivity->surely_shown();
    if (shown > study_.repeats.until) return false;
    say(
        formatted("%d repeats are enough: by the A/A pair, also if it varies more than it did so far, they show "
                  "differences of %.2g %% and more; %g %% was asked for",
                  analysis.sensitivity->n, 100 * shown, 100 * study_.repeats.until));
    return true;
  }

  void end_early(int64_t blocks) {
    left_ = 0;
    if (lines_.back().find("event")->as_string() == "enough") return;  // an earlier start has told it
    Value line = Value::object();
    line.set("event", "enough"), line.set("repeats", blocks), line.set("time", time_now());
    add(line);
  }

  // "at most ": the study can end by itself.
  const char* at_most() const { return study_.repeats.until > 0 ? "at most " : ""; }

  Value line_of(const Turn& turn) const {
    Value line = Value::object();
    line.set("event", "end"), line.set("run", run_id(turn)), line.set("cell", design_.cells[turn.cell].id);
    line.set("block", turn.block);
    return line;
  }

  void refuse(Value& line, const Turn& turn) {
    line.set("state", state_name(State::refused)), line.set("reason", plans_[turn.cell].refusal);
    add(line);
    progress_.ended(turn.cell, State::refused);
    if (turn.block == 0) say(design_.cells[turn.cell].id + "  refused: " + first_line(plans_[turn.cell].refusal));
  }

  void skip(Value& line, const Turn& turn) {
    if (!told_budget_)
      say(concat("the budget of ", study_.budget_s, " s is spent: ", left_, " runs are skipped; --resume runs them"));
    told_budget_ = true;
    line.set("state", state_name(State::skipped)), line.set("reason", "the budget was spent");
    add(line);
    progress_.ended(turn.cell, State::skipped);
  }

  // A folder that no run had: one that was killed leaves its own behind.
  std::string new_folder(const Turn& turn) const {
    const std::string base = concat(study_.output_dir, "/runs/", design_.cells[turn.cell].id, "/", turn.block + 1);
    std::string folder = base;
    for (int again = 2; fs::exists(folder); ++again) folder = concat(base, ".", again);
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) throw fail(ErrorCode::io, "study: cannot create ", one_line(folder), ": ", error.message());
    return folder;
  }

  std::optional<int64_t> seed_of(const Turn& turn) const {
    return study_.seed_per_repeat ? std::optional(static_cast<int64_t>(study_.seed) + turn.block) : std::nullopt;
  }

  std::set<std::string> metrics() const {
    std::set<std::string> names;
    for (const Outcome& outcome : study_.outcomes) names.insert(outcome.metric);
    return names;
  }

  void run_one(Value line, const Turn& turn) {
    const std::string folder = new_folder(turn);
    Value begin = line;
    begin.set("event", "start"), begin.set("time", time_now()), begin.set("folder", folder);
    add(begin);
    progress_.begin_run(design_.cells[turn.cell].id, turn.block);
    const CellEnd end = run_cell({.plan = &plans_[turn.cell],
                                  .program = request_.program,
                                  .base = base_,
                                  .folder = folder,
                                  .timeout_s = study_.timeout_s,
                                  .memory_limit = study_.memory_limit,
                                  .seed = seed_of(turn),
                                  .figures = metrics(),
                                  .meter = meter_.any() ? &meter_ : nullptr,
                                  .tick = [this](double now_s, int64_t step) { progress_.tick(now_s, step); }});
    for (const Value::Member& m : end.line.members()) line.set(m.key, m.value);
    line.set("time", time_now());
    if (end.disk_full) stop_for_disk(line);
    add(line);
    spent_s_ += end.wall_s;
    progress_.end_run(end.wall_s), progress_.ended(turn.cell, state_called(line.find("state")->as_string()));
    tell(line, turn, end.wall_s);
    if (design_.cells[turn.cell].is_reference) check_has_outcomes(line, study_.outcomes, study_.path);
  }

  [[noreturn]] void stop_for_disk(Value line) {
    const std::string reason = line.find("reason")->as_string();
    line.set("state", state_name(State::skipped));
    add(line);
    throw fail(ErrorCode::io, "study: the disk is full: ", reason,
               "\n   make room and go on with `drivetrain study FILE --resume`: that run comes again");
  }

  void tell(const Value& line, const Turn& turn, double wall_s) {
    std::string text = concat("[", at_most(), progress_.left(), " left, ", progress_.time_left(), "]  ");
    text += design_.cells[turn.cell].id + concat("  repeat ", turn.block + 1, "  ", line.find("state")->as_string());
    std::vector<double> steps;
    for (const Value& step : line.find("step_s")->items()) steps.push_back(step.as_double());
    const Window window = steady_window(steps, study_.warmup);
    if (line.find("state")->as_string() == "ok" && !steps.empty())
      text +=
          formatted("  %.4g ms per step", 1e3 * run_figure({steps.begin() + static_cast<std::ptrdiff_t>(window.first),
                                                            steps.begin() + static_cast<std::ptrdiff_t>(window.last)},
                                                           study_.warmup));
    else if (const Value* const reason = line.find("reason"))
      text += "  " + first_line(reason->as_string());
    say(text + formatted("  (%.1f s)", wall_s));
  }

  const StudyFile& study_;
  const RunRequest& request_;
  const Design design_;
  const std::string build_;
  std::string base_;
  std::vector<CellPlan> plans_;
  std::vector<Value> lines_;
  Ledger* ledger_ = nullptr;
  Value head_;
  bool grows_ = false;
  EnergyMeter meter_;
  Progress progress_;
  int64_t left_ = 0;
  double spent_s_ = 0;
  bool told_budget_ = false;
};

}  // namespace

int run_study(const StudyFile& study, const RunRequest& request) {
  const Interrupts interrupts;
  Runner runner(study, request);
  return request.plan_only ? runner.plan() : runner.run();
}

}  // namespace drivetrain::study
