// Pipeline schedules: what surrounds an order of computations.
#include <drivetrain/toolkit/pipeline/pipeline.h>
#include <drivetrain/toolkit/pipeline/schedule_graph.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <queue>

#include <drivetrain/toolkit/recorded_when_asked.h>
#include <drivetrain/toolkit/text.h>

#include "chunk_cuts.h"
#include "even_cuts.h"

namespace drivetrain {
namespace {

constexpr int64_t kMostMicroBatches = std::numeric_limits<decltype(Instr::micro)>::max();
constexpr int64_t kMostSlots = int64_t{std::numeric_limits<decltype(Instr::slot)>::max()} + 1;  // counted from 0

bool frees_slot(Op op) { return op == Op::backward || op == Op::backward_weight; }

// Gives each activation the lowest slot that is free: as few as are alive at once.
class Slots {
 public:
  int16_t take(const Instr& at) {
    if (free_.empty()) add();
    const int16_t slot = free_.top();
    free_.pop();
    return of_[key(at)] = slot;
  }
  int16_t of(const Instr& at) const { return of_.at(key(at)); }
  void give_back(const Instr& at) { free_.push(of(at)); }

 private:
  void add() {
    if (count_ == kMostSlots)
      throw fail(ErrorCode::config, "more activations are in flight than the ", kMostSlots, " that a program can name");
    free_.push(static_cast<int16_t>(count_++));
  }
  static std::pair<int16_t, int16_t> key(const Instr& at) { return {at.micro, at.chunk}; }
  std::priority_queue<int16_t, std::vector<int16_t>, std::greater<>> free_;
  int64_t count_ = 0;
  std::map<std::pair<int16_t, int16_t>, int16_t> of_;
};

// What to say if `stage` holds more activations than an instruction can name; empty if it does not.
std::string slots_problem(const Schedule& schedule, int64_t stage, int64_t micro_batches) {
  if (micro_batches * schedule.chunks() <= kMostSlots) return {};  // spares counting them
  const int64_t slots = schedule.slots(stage, micro_batches);
  if (slots <= kMostSlots) return {};
  return concat("stage ", stage, " of ", schedule.stages(), " has ", slots, " activations in flight with ",
                schedule.chunks(), " chunks and ", micro_batches, " micro-batches in a step, and a program can name ",
                kMostSlots,
                "; lower chunks, group_size, or the micro-batches by making them larger "
                "(train_micro_batch_size_per_gpu)");
}

// Puts loads and messages around computations.
class ProgramWriter {
 public:
  ProgramWriter(const Schedule& schedule, int64_t stage, Pass pass) : graph_(schedule), stage_(stage), pass_(pass) {}

  Program write(const Program& computations) {
    for (const Instr& c : computations) c.op == Op::forward ? forward(c) : backward(c);
    return std::move(list_);
  }

 private:
  void forward(const Instr& c) {
    load(c.micro);
    const int16_t slot = slots_.take(c);
    if (has_previous(c)) put(Op::recv_forward, c, slot);
    put(Op::forward, c, slot);
    if (has_next(c)) put(Op::send_forward, c, slot);
    if (pass_ == Pass::forward_only) slots_.give_back(c);
  }

  void backward(const Instr& c) {
    const int16_t slot = slots_.of(c);
    if (has_next(c) && c.op != Op::backward_weight) put(Op::recv_backward, c, slot);
    put(c.op, c, slot);
    if (has_previous(c) && c.op != Op::backward_weight) put(Op::send_backward, c, slot);
    if (frees_slot(c.op)) slots_.give_back(c);
  }

  void load(int16_t micro) {
    if (static_cast<size_t>(micro) >= loaded_.size()) loaded_.resize(micro + 1);
    if (loaded_[micro]) return;
    loaded_[micro] = true;
    list_.push_back({Op::load, micro});
  }

  void put(Op op, const Instr& c, int16_t slot) { list_.push_back({op, c.micro, c.chunk, slot}); }
  bool has_previous(const Instr& c) const { return graph_.sender({stage_, c.chunk}, Direction::forward).has_value(); }
  bool has_next(const Instr& c) const { return graph_.receiver({stage_, c.chunk}, Direction::forward).has_value(); }

  const ScheduleGraph graph_;
  const int64_t stage_;
  const Pass pass_;
  Slots slots_;
  std::vector<bool> loaded_;
  Program list_;
};

}  // namespace

void check_pipeline_cuts(const PipelineOptions& options, int64_t chunks) {
  if (options.cuts.empty()) return;
  const int64_t pieces = options.stages * chunks;
  if (static_cast<int64_t>(options.cuts.size()) != pieces - 1)
    throw fail(ErrorCode::config, "cuts has ", options.cuts.size(), " entries, and ", options.stages, " stages of ",
               chunks, chunks == 1 ? " piece" : " pieces", " need ", pieces - 1,
               ": the first unit of each piece but the first");
  int64_t before = 0;
  for (const int64_t cut : options.cuts) {
    if (cut <= before)
      throw fail(ErrorCode::config, "cuts must rise from 1, every piece has a unit at least: found ", cut, " after ",
                 before);
    before = cut;
  }
}

PipelineSchedule::PipelineSchedule(const PipelineOptions& options, int64_t chunks)
    : stages_(options.stages), chunks_(options.stages > 1 ? chunks : 1), cuts_(options.cuts) {
  if (stages_ < 1 || chunks_ < 1)
    throw fail(ErrorCode::config, "a pipeline has 1 stage and 1 chunk at least, found ", stages_, " stages and ",
               chunks_, " chunks");
  check_pipeline_cuts(options, chunks_);
}

PipelineSchedule::~PipelineSchedule() = default;

std::optional<double> PipelineSchedule::bubble(int64_t) const { return {}; }

void PipelineSchedule::plan(PlanContext& ctx) {
  if (stages_ == 1) return ctx.capturable();
  ctx.offer(toolkit::kRecordedWhenAsked);
  ctx.claim_axis(kAxis, stages_, PlanContext::Reads::same, PlanContext::kStagePlace);
  const RunFacts& run = ctx.run();
  if (!run.accumulation.known()) return;
  const int64_t micro_batches = run.accumulation;
  if (micro_batches > kMostMicroBatches)
    ctx.refuse(concat(micro_batches, " micro-batches in a step are more than the ", kMostMicroBatches,
                      " that a pipeline can name; make them larger (train_micro_batch_size_per_gpu)"));
  for (int64_t stage = 0; run.training && stage < stages_ && micro_batches <= kMostMicroBatches; ++stage)
    if (const std::string problem = slots_problem(*this, stage, micro_batches); !problem.empty())
      return ctx.refuse(problem);
  if (const auto idle = bubble(micro_batches); idle && run.training)
    ctx.cost(concat("stages of equal cost wait for each other ", formatted("%.1f %%", 100 * *idle),
                    " of the time they work (", stages_, " stages, ", micro_batches,
                    micro_batches == 1 ? " micro-batch" : " micro-batches", ", backward twice a forward)"));
  if (const double bytes = bytes_sent(run, static_cast<double>(ctx.model().hidden_size)); bytes > 0)
    ctx.traffic(kAxis, "activations and their gradients between stages", bytes);
}

// What the busiest rank sends in a step: an activation for every piece that another one follows, a gradient for every
// piece but the first.
double PipelineSchedule::bytes_sent(const RunFacts& run, double hidden) const {
  const ScheduleGraph graph(*this);
  int64_t most = 0;
  for (int64_t s = 0; s < stages_; ++s) {
    int64_t messages = 0;
    for (int64_t c = 0; c < chunks_; ++c)
      messages += graph.receiver({s, c}, Direction::forward).has_value() +
                  (run.training && graph.receiver({s, c}, Direction::backward));
    most = std::max(most, messages);
  }
  if (!run.seq_length.known() || !run.micro_batch_size.known()) return 0;
  const double positions = run.rank_positions.known() ? static_cast<double>(run.rank_positions)
                                                      : static_cast<double>(run.seq_length) /
                                                            static_cast<double>(run.position_ranks.value_or(1));
  const double message = static_cast<double>(run.micro_batch_size) * positions * hidden * run.compute_bytes;
  return static_cast<double>(most * run.accumulation) * message;
}

std::vector<int64_t> PipelineSchedule::partition(const std::vector<double>& unit_costs) const {
  const int64_t units = static_cast<int64_t>(unit_costs.size()), pieces = stages_ * chunks_;
  if (units < pieces)
    throw fail(ErrorCode::config, stages_, " stages", chunks_ > 1 ? concat(" of ", chunks_, " chunks") : std::string(),
               " need ", pieces, " units at least, and the model has ", units, "; take fewer ",
               chunks_ > 1 ? "stages or chunks" : "stages");
  if (!cuts_.empty()) {
    if (cuts_.back() >= units)
      throw fail(ErrorCode::config, "cuts ends with unit ", cuts_.back(), ", and the model has ", units,
                 " units, 0 to ", units - 1);
    std::vector<int64_t> first = {0};
    first.insert(first.end(), cuts_.begin(), cuts_.end());
    return first;
  }
  const std::vector<int64_t> even = even_cuts(unit_costs, pieces);
  if (chunks_ == 1) return even;
  const int64_t micro_batches = 4 * stages_;
  std::vector<Program> orders;
  for (int64_t s = 0; s < stages_; ++s) orders.push_back(computations(s, micro_batches, Pass::train));
  return shorter_cuts(*this, orders, micro_batches, unit_costs, even);
}

Program PipelineSchedule::program(int64_t stage, int64_t micro_batches, Pass pass) const {
  if (micro_batches > kMostMicroBatches)
    throw fail(ErrorCode::config, micro_batches, " micro-batches in a step, and a program can name ",
               kMostMicroBatches);
  if (const std::string problem = pass == Pass::train ? slots_problem(*this, stage, micro_batches) : std::string();
      !problem.empty())
    throw fail(ErrorCode::config, problem);
  return ProgramWriter(*this, stage, pass).write(computations(stage, micro_batches, pass));
}

Program PipelineSchedule::computations(int64_t stage, int64_t micro_batches, Pass pass) const {
  Program list;
  if (stages_ > 1 && micro_batches > 0) {
    list = order(stage, micro_batches);
  } else {
    for (int64_t m = 0; m < micro_batches; ++m)
      list.push_back(instr(Op::forward, m)), list.push_back(instr(Op::backward, m));
  }
  if (pass == Pass::forward_only) std::erase_if(list, [](const Instr& i) { return i.op != Op::forward; });
  return list;
}

int64_t PipelineSchedule::slots(int64_t stage, int64_t micro_batches) const {
  int64_t alive = 0, most = 1;
  for (const Instr& i : computations(stage, micro_batches, Pass::train)) {
    alive += (i.op == Op::forward) - frees_slot(i.op);
    most = std::max(most, alive);
  }
  return most;
}

Instr PipelineSchedule::instr(Op op, int64_t micro, int64_t chunk) {
  return {op, static_cast<int16_t>(micro), static_cast<int16_t>(chunk)};
}

}  // namespace drivetrain
