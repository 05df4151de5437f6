// Runs what is left of a study, block by block, in as many slots as there are. Only this process writes the ledger: the
// runs of a block may end in any order, and the next block begins when all of them have.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "study/cell_plan.h"
#include "study/cell_run.h"
#include "study/design.h"
#include "study/energy.h"
#include "study/ledger.h"
#include "study/progress.h"
#include "study/slots.h"
#include "study/slurm.h"

namespace drivetrain::study {

// All of it outlives the dispatcher.
struct Dispatched {
  const StudyFile& study;
  const Design& design;
  const std::vector<CellPlan>& plans;
  std::string program, build, base;
  Ledger& ledger;
  std::vector<Value>& lines;  // of the ledger
  Progress& progress;
  std::vector<Slot> slots;               // at least one
  SlurmQueue* slurm = nullptr;           // where runs are tasks of array jobs; null: this host runs them
  std::function<void()> after_run = {};  // when the ledger has its end; it may be empty
};

class Dispatcher {
 public:
  explicit Dispatcher(Dispatched all);
  ~Dispatcher();  // runs at hand are ended

  // Returns where all is done, the budget is spent, or a signal came. Throws Error, after the runs at hand have ended.
  void run();
  int64_t left() const { return left_; }            // runs that --resume would do
  bool has_lost() const { return !lost_.empty(); }  // tasks of SLURM ended without a result

 private:
  struct Running;
  // A run that SLURM has.
  struct Task {
    Turn turn;
    Value line;
    std::string folder;
    SlurmTask place;
    bool adopted = false;                                               // of an earlier start of the study
    std::optional<std::chrono::steady_clock::time_point> over_since{};  // by SLURM's word, without a result
  };

  void run_block(std::deque<Turn> queue);
  // dispatcher_slurm.cpp
  void run_array(std::deque<Turn> queue);
  void adopt(std::vector<Turn>& turns);
  void submit(const std::vector<Turn>& turns);
  void collect(std::deque<Turn>& again);
  bool collected(Task& task, std::deque<Turn>& again);
  void tell_lost(const Task& task, const std::string& state);
  bool is_startable() const;
  void start(const Turn& turn, size_t slot);
  void look(std::deque<Turn>& queue);
  void ended(size_t slot, const CellEnd& end, std::deque<Turn>& queue);
  void settle(const Turn& turn, Value line, const CellEnd& end, std::deque<Turn>& queue);
  bool comes_again(const Turn& turn, const Value& line);
  void stop_for_disk(Value line);

  void add(const Value& line);
  void say(const std::string& text) { all_.progress.line(text); }
  void tell_stop();
  void tell(const Value& line, const Turn& turn, double wall_s);
  void refuse(const Turn& turn);
  void skip(const Turn& turn);
  void stop_losers(int64_t blocks, const std::vector<Turn>& order);
  bool is_stopped(const Turn& turn) const { return stopped_.contains(cell_id(turn)); }
  bool shows_enough(int64_t blocks);
  void end_early(int64_t blocks);
  const char* at_most() const { return all_.study.repeats.until > 0 ? "at most " : ""; }  // it can end by itself

  std::string run_id(const Turn& turn) const;
  Value line_of(const Turn& turn) const;
  std::string new_folder(const Turn& turn) const;
  std::optional<int64_t> seed_of(const Turn& turn) const;
  CellRun run_of(const Turn& turn, const std::string& folder) const;
  const std::string& cell_id(const Turn& turn) const { return all_.design.cells[turn.cell].id; }
  bool is_over_budget() const { return all_.study.budget_s > 0 && spent_s_ >= all_.study.budget_s; }

  const Dispatched all_;
  std::vector<std::unique_ptr<Running>> runs_;       // by slot; null: it is free
  std::vector<Task> tasks_;                          // that have not ended
  std::vector<std::string> lost_;                    // tasks without a result, in words
  std::map<std::pair<size_t, int64_t>, int> tries_;  // of a cell and block, under a load that is not allowed
  std::set<std::string> stopped_;                    // cells that cannot win any more
  std::exception_ptr problem_;                       // after which no run starts
  EnergyMeter meter_;
  int64_t left_ = 0;
  double spent_s_ = 0;
  bool told_budget_ = false, told_stop_ = false;
};

}  // namespace drivetrain::study
