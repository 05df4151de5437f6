#include <drivetrain/toolkit/pipeline/program_check.h>

#include <algorithm>
#include <bit>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

// What was done for a micro-batch in a chunk.
enum Done : unsigned {
  kReceived = 1,
  kForward = 2,
  kSent = 4,
  kReceivedBack = 8,
  kInput = 16,
  kWeight = 32,
  kSentBack = 64,
  kAllDone = 127
};

struct OpRule {
  const char *name, *letter = nullptr;  // the letter that papers write for a computation
  unsigned needs = 0, gives = 0;
};
constexpr OpRule kRules[] = {
    // by Op
    {"load"},
    {"recv_forward", nullptr, 0, kReceived},
    {"forward", "F", kReceived, kForward},
    {"send_forward", nullptr, kForward, kSent},
    {"recv_backward", nullptr, kForward, kReceivedBack},
    {"backward", "B", kForward | kReceivedBack, kInput | kWeight},
    {"backward_input", "B", kForward | kReceivedBack, kInput},
    {"backward_weight", "W", kInput, kWeight},
    {"send_backward", nullptr, kInput, kSentBack},
};

OpRule rule_of(Op op) {
  return op <= Op::send_backward ? kRules[static_cast<size_t>(op)] : OpRule{"an unknown instruction"};
}

std::string names_of(unsigned done) {
  std::string text;
  for (const OpRule& rule : kRules)
    if (std::has_single_bit(rule.gives) && (done & rule.gives))
      text += (text.empty() ? "" : ", ") + std::string(rule.name);
  return text;
}

class ProgramWalk {
 public:
  ProgramWalk(const ScheduleGraph& graph, int64_t stage, int64_t micro_batches, Pass pass, int64_t slots)
      : stage_(stage), micro_batches_(micro_batches), chunks_(graph.chunks()), train_(pass == Pass::train) {
    loaded_.resize(static_cast<size_t>(micro_batches));
    holders_.resize(static_cast<size_t>(std::max<int64_t>(slots, 0)), kFree);
    for (int64_t c = 0; c < chunks_; ++c) {
      Cell cell;
      if (!graph.sender({stage, c}, Direction::forward)) cell.done |= kReceived | kSentBack;
      if (!graph.receiver({stage, c}, Direction::forward)) cell.done |= kSent | kReceivedBack;
      if (!train_) cell.done |= kReceivedBack | kInput | kWeight | kSentBack;
      cells_.insert(cells_.end(), static_cast<size_t>(micro_batches), cell);
    }
  }

  ProgramCheck walk(const Program& program) {
    for (const Instr& i : program) step(i);
    for (int64_t c = 0; c < chunks_; ++c)
      for (int64_t m = 0; m < micro_batches_; ++m)
        if (const unsigned missing = kAllDone & ~cells_[index(m, c)].done)
          problem("micro-batch ", m, " of chunk ", c, " has no ", names_of(missing));
    return std::move(check_);
  }

 private:
  static constexpr int64_t kFree = -1;
  struct Cell {
    unsigned done = 0;
    int16_t slot = -1;
  };

  void step(const Instr& i) {
    const OpRule rule = rule_of(i.op);
    if (i.micro < 0 || i.micro >= micro_batches_ || i.chunk < 0 || i.chunk >= chunks_)
      return problem(rule.name, " names micro-batch ", i.micro, " of chunk ", i.chunk, "; there are ", micro_batches_,
                     " of ", chunks_);
    if (i.op == Op::load) return load(i);
    Cell& cell = cells_[index(i.micro, i.chunk)];
    if (cell.done & rule.gives) problem(instr_text(i, true), " comes twice, or has no business in this piece and pass");
    if (const unsigned missing = rule.needs & ~cell.done)
      problem(instr_text(i, true), " comes before ", names_of(missing));
    if (i.op == Op::forward && !loaded_[static_cast<size_t>(i.micro)])
      problem(instr_text(i, true), " comes before its load");
    cell.done |= rule.gives;
    hold(i, cell);
  }

  void load(const Instr& i) {
    if (loaded_[static_cast<size_t>(i.micro)]) problem("micro-batch ", i.micro, " is loaded twice");
    loaded_[static_cast<size_t>(i.micro)] = true;
  }

  // The first of its instructions takes the slot, the last that reads the activation gives it back.
  void hold(const Instr& i, Cell& cell) {
    if (cell.slot < 0) take(i, cell);
    if (cell.slot != i.slot)
      problem(instr_text(i, true), " names slot ", i.slot, ", and its activation is in ", cell.slot);
    const bool last_use =
        train_ ? i.op == Op::backward || i.op == Op::backward_weight : (cell.done & kForward) && (cell.done & kSent);
    if (!last_use || cell.slot < 0 || holders_.size() <= static_cast<size_t>(cell.slot)) return;
    holders_[static_cast<size_t>(cell.slot)] = kFree;
    --alive_;
  }

  void take(const Instr& i, Cell& cell) {
    cell.slot = i.slot;
    check_.peak_in_flight = std::max(check_.peak_in_flight, ++alive_);
    if (i.slot < 0 || static_cast<size_t>(i.slot) >= holders_.size())
      return problem(instr_text(i, true), " takes slot ", i.slot, ", and slots() promises ", holders_.size());
    int64_t& holder = holders_[static_cast<size_t>(i.slot)];
    if (holder != kFree)
      problem(instr_text(i, true), " takes slot ", i.slot, ", which micro-batch ", holder % micro_batches_,
              " of chunk ", holder / micro_batches_, " still holds");
    holder = static_cast<int64_t>(index(i.micro, i.chunk));
  }

  size_t index(int64_t micro, int64_t chunk) const { return static_cast<size_t>(chunk * micro_batches_ + micro); }

  template <class... Parts>
  void problem(const Parts&... parts) {
    if (check_.problems.size() < 12) check_.problems.push_back(concat("stage ", stage_, ": ", parts...));
  }

  const int64_t stage_, micro_batches_, chunks_;
  const bool train_;
  int64_t alive_ = 0;
  std::vector<bool> loaded_;
  std::vector<Cell> cells_;       // chunk by chunk
  std::vector<int64_t> holders_;  // of slots: index of a cell
  ProgramCheck check_;
};

}  // namespace

ProgramCheck check_program(const ScheduleGraph& graph, int64_t stage, const Program& program, int64_t micro_batches,
                           Pass pass, int64_t slots) {
  return ProgramWalk(graph, stage, micro_batches, pass, slots).walk(program);
}

std::string instr_text(const Instr& instr, bool with_chunk) {
  const OpRule rule = rule_of(instr.op);
  const std::string number = with_chunk ? concat(instr.micro, ".", instr.chunk) : concat(instr.micro);
  return rule.letter ? rule.letter + number : concat(rule.name, " ", number);
}

}  // namespace drivetrain
