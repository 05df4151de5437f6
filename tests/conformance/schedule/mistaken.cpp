// GPipe, with a mistake that can be asked for.
#include <algorithm>

#include <drivetrain/services.h>
#include <drivetrain/toolkit/pipeline/pipeline.h>

namespace {

using namespace drivetrain;

struct MistakenOptions : PipelineOptions {
  std::string mistake = "none";
};

class AllForwardFirst : public PipelineSchedule {
 public:
  AllForwardFirst(const PipelineOptions& options, bool first_stage_waits)
      : PipelineSchedule(options), first_stage_waits_(first_stage_waits) {}

 protected:
  // A first stage that waits for each gradient gets none from stages that wait for the next micro-batch.
  Program order(int64_t stage, int64_t micro_batches) const override {
    Program list;
    for (int64_t m = 0; first_stage_waits_ && stage == 0 && m < micro_batches; ++m)
      list.push_back(instr(Op::forward, m)), list.push_back(instr(Op::backward, m));
    if (!list.empty()) return list;
    for (const Op op : {Op::forward, Op::backward})
      for (int64_t m = 0; m < micro_batches; ++m) list.push_back(instr(op, m));
    return list;
  }

 private:
  const bool first_stage_waits_;
};

class Mistaken : public Schedule {
 public:
  using Options = MistakenOptions;
  static OptionTable options() {
    return pipeline_table<Options>()
        .field("mistake", &Options::mistake, "what is wrong")
        .one_of({"none", "misses_a_receive", "backward_before_forward", "leaves_one_out", "does_one_twice",
                 "stages_wait_for_each_other", "one_slot_for_all", "promises_too_few_slots", "promises_too_many_slots",
                 "backward_in_evaluation", "another_program_each_time", "one_stage_keeps_all", "cuts_unevenly",
                 "cuts_an_empty_piece", "cuts_behind_the_first_unit", "claims_nothing", "joins_gradients",
                 "claims_for_one_stage"});
  }
  Mistaken(const Options& options, const Services&)
      : mistake_(options.mistake), right_(options, mistake_ == "stages_wait_for_each_other") {}

  void plan(PlanContext& ctx) override {
    if (is("joins_gradients"))
      return ctx.claim_axis(kAxis, stages(), PlanContext::Reads::other_rows, PlanContext::kStagePlace);
    if (is("claims_for_one_stage") && stages() == 1)
      return ctx.claim_axis(kAxis, 1, PlanContext::Reads::same, PlanContext::kStagePlace);
    if (!is("claims_nothing")) right_.plan(ctx);
  }
  int64_t stages() const override { return right_.stages(); }

  std::vector<int64_t> partition(const std::vector<double>& costs) const override {
    std::vector<int64_t> first = right_.partition(costs);
    if (is("cuts_unevenly"))
      for (size_t i = 0; i < first.size(); ++i) first[i] = static_cast<int64_t>(i);
    if (is("cuts_an_empty_piece")) first.back() = static_cast<int64_t>(costs.size());
    if (is("cuts_behind_the_first_unit")) first.front() = 1;
    return first;
  }

  Program program(int64_t stage, int64_t micro_batches, Pass pass) const override {
    Program list = right_.program(stage, micro_batches, is("backward_in_evaluation") ? Pass::train : pass);
    const auto first = [&](Op op) {
      return std::find_if(list.begin(), list.end(), [op](const Instr& i) { return i.op == op; });
    };
    const auto forward = first(Op::forward), backward = first(Op::backward), receive = first(Op::recv_forward);
    if (is("misses_a_receive") && receive != list.end()) list.erase(receive);
    if (is("backward_before_forward") && backward != list.end()) std::rotate(forward, backward, backward + 1);
    if (is("leaves_one_out") && backward != list.end()) list.erase(backward);
    if (is("does_one_twice")) list.insert(forward, Instr(*forward));
    if (is("one_slot_for_all"))
      for (Instr& i : list) i.slot = 0;
    // All loads may come first or each when it is wanted.
    if (is("another_program_each_time") && ++calls_ % 2 == 0)
      std::stable_partition(list.begin(), list.end(), [](const Instr& i) { return i.op == Op::load; });
    if (is("one_stage_keeps_all") && stages() == 1 && pass == Pass::train) keep_all(list);
    return list;
  }

  int64_t slots(int64_t stage, int64_t micro_batches) const override {
    if (is("one_stage_keeps_all") && stages() == 1) return micro_batches;
    const int64_t more = is("promises_too_many_slots") ? 1 : is("promises_too_few_slots") ? -1 : 0;
    return right_.slots(stage, micro_batches) + more;
  }

 private:
  bool is(const char* mistake) const { return mistake_ == mistake; }
  static void keep_all(Program& list) {
    for (Instr& i : list) i.slot = i.op == Op::load ? int16_t{0} : i.micro;
    std::stable_partition(list.begin(), list.end(), [](const Instr& i) { return i.op != Op::backward; });
  }

  const std::string mistake_;
  AllForwardFirst right_;
  mutable int64_t calls_ = 0;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Schedule, "mistaken", Mistaken)
