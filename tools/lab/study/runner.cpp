#include "study/runner.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <optional>

#include <drivetrain/error.h>

#include "base/printable.h"
#include "drivetrain/toolkit/text.h"
#include "study/cell_time.h"
#include "study/dispatcher.h"
#include "study/interrupts.h"
#include "study/limits.h"
#include "study/past_runs.h"
#include "study/plan_folder.h"
#include "study/plan_table.h"
#include "study/progress.h"
#include "study/records.h"
#include "study/report.h"
#include "study/slots.h"
#include "study/slurm.h"
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
    check_slots(slots_here(study_), design_.cells, plans_, study_.path);
    check_slurm(study_, design_.cells, plans_);
    check_reach(study_, plans_);
    const std::string& hardware = request_.hardware.empty() ? study_.hardware : request_.hardware;
    if (!hardware.empty()) plan_times(plans_, questions, base_, hardware);
    if (!request_.json) tell_limits();
    const auto form = request_.json ? plan_json : plan_text;
    const std::string text = form(study_, design_, plans_, mean_wall_s(study_.output_dir), memory_here());
    std::cout << (request_.json ? printable_json(text) : printable(text));
    return 0;
  }

  int run() {
    slots_ = slots_here(study_);  // refused before anything is written
    std::optional<SlurmQueue> slurm;
    if (study_.dispatch.is_slurm) slurm.emplace(study_, request_.program);
    Ledger ledger(study_.output_dir);
    ledger_ = &ledger;
    lines_ = ledger.lines();
    begin();
    plan_cells();
    if (slots_.size() > 1) tell_slots(slots_);
    Dispatcher dispatcher({.study = study_,
                           .design = design_,
                           .plans = plans_,
                           .program = request_.program,
                           .build = build_,
                           .base = base_,
                           .ledger = ledger,
                           .lines = lines_,
                           .progress = progress_,
                           .slots = slots_,
                           .slurm = slurm ? &*slurm : nullptr,
                           .after_run = request_.live ? [this] { show_live(); } : std::function<void()>()});
    dispatcher.run();
    write_report(records_of(read_ledger(study_.output_dir), study_.output_dir));
    say("report: " + study_.output_dir + "/report.html");
    if (Interrupts::count() > 0 && dispatcher.left() > 0) return 128 + Interrupts::last();
    return dispatcher.has_lost() ? static_cast<int>(ErrorCode::communication) : 0;
  }

 private:
  void say(const std::string& text) { progress_.line(text); }

  // Where a page takes long to make, runs wait for it in a twentieth of the time at most.
  void show_live() {
    const auto now = std::chrono::steady_clock::now();
    if (now < next_page_) return;
    write_live_page(records_of(lines_, study_.output_dir));
    next_page_ = now + 20 * (std::chrono::steady_clock::now() - now);
  }

  void begin() {
    if (ledger_->cut_line() > 0)
      say(concat("line ", ledger_->cut_line(), " of the ledger is cut, as by a crash: that run is done again"));
    head_ = head_of(study_, design_, build_);
    const bool is_new = ledger_->is_new();
    if (is_new) {
      // Written once its cells can be.
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
      check_ranks(plans_, study_.path);
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
    check_slots(slots_, design_.cells, plans_, study_.path);
    check_slurm(study_, design_.cells, plans_);
    check_reach(study_, plans_);
    tell_limits();
    if (ledger_->is_new()) add(head_);
    std::vector<Value> news;
    for (size_t i = 0; i < plans_.size(); ++i)
      if (!known.contains(design_.cells[i].id))
        news.push_back(cell_line(design_.cells[i], plans_[i], study_, reproduce_line(plans_[i], base_, "")));
    if (grows_) tell_growth(news.size());
    for (const Value& line : news) add(line);
  }

  // What a plan says before the first run needs no run to find out.
  void tell_limits() {
    if (const std::string advice = advice_on_seeds(study_); !advice.empty()) say(advice);
    for (const std::string& line : expected_failures(study_, design_.cells, plans_, memory_here())) say(line);
  }

  void tell_slots(const std::vector<Slot>& slots) {
    std::vector<std::string> list;
    for (size_t i = 0; i < slots.size(); ++i)
      list.push_back(concat("slot ", i + 1, ": ", slots[i].place(),
                            slots[i].devices.empty() ? "" : ", devices " + slots[i].devices));
    say("runs side by side: " + join(list, "; "));
  }

  // From here on the study is this one.
  void tell_growth(size_t cells) {
    Value ids = Value::array();
    for (const Cell& cell : design_.cells) ids.items().push_back(cell.id);
    head_.set("event", "grown"), head_.set("cells", std::move(ids));
    add(head_);
    say(concat("the study grows: ", cells, " further cells, ", study_.repeats.most, " repeats"));
    if (study_.gate == 0 && study_.outcomes.empty()) say("losses of cells are not compared: the study has no \"gate\"");
  }

  const StudyFile& study_;
  const RunRequest& request_;
  const Design design_;
  const std::string build_;
  std::string base_;
  std::vector<CellPlan> plans_;
  std::vector<Slot> slots_;
  std::vector<Value> lines_;
  Ledger* ledger_ = nullptr;
  Value head_;
  bool grows_ = false;
  std::chrono::steady_clock::time_point next_page_{};
  Progress progress_;
};

}  // namespace

int run_study(const StudyFile& study, const RunRequest& request) {
  const Interrupts interrupts;
  Runner runner(study, request);
  return request.plan_only ? runner.plan() : runner.run();
}

}  // namespace drivetrain::study
