#include <drivetrain/testkit/schedule/suite.h>

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include <drivetrain/error.h>

#include <drivetrain/testkit/kit/decorators.h>
#include <drivetrain/testkit/kit/host.h>
#include <drivetrain/toolkit/pipeline/timeline.h>

namespace drivetrain::test {
namespace {

// Every activation holds a slot, no two the same, and no more are promised than are needed.
void check_slots(const Schedule& schedule, const Timeline& line) {
  for (size_t s = 0; s < line.stages.size(); ++s)
    EXPECT_EQ(schedule.slots(static_cast<int64_t>(s), line.micro_batches), line.stages[s].peak_in_flight)
        << "stage " << s;
}

// The runtime asks when it plans and again before the first step.
void check_asked_again(const Schedule& schedule, int64_t micro_batches) {
  for (const Pass pass : {Pass::train, Pass::forward_only})
    for (int64_t s = 0; s < schedule.stages(); ++s) {
      const Program once = schedule.program(s, micro_batches, pass);
      EXPECT_TRUE(schedule.program(s, micro_batches, pass) == once) << "stage " << s << ", asked again";
    }
}

void check_schedule(const Schedule& schedule, int64_t micro_batches, const BubbleOf& bubble_of) {
  SCOPED_TRACE(concat(schedule.stages(), " stages, ", schedule.chunks(), " chunks, ", micro_batches, " micro-batches"));
  try {
    const Timeline line = simulate(schedule, micro_batches, Pass::train);
    check_slots(schedule, line);
    if (const auto bubble = bubble_of ? bubble_of(schedule, micro_batches) : std::nullopt) {
      EXPECT_NEAR(line.bubble(), *bubble, 1e-12);
    }
    const Timeline forward = simulate(schedule, micro_batches, Pass::forward_only);
    for (size_t s = 0; s < line.stages.size(); ++s) EXPECT_LE(forward.stages[s].peak_in_flight, line.stages[s].slots);
  } catch (const Error& e) {
    ADD_FAILURE() << e.what();
  }
}

// Loads, forward and backward one micro-batch after another.
void check_one_stage(const Schedule& schedule, int64_t micro_batches) {
  Program wanted;
  for (int64_t m = 0; m < micro_batches; ++m)
    for (const Op op : {Op::load, Op::forward, Op::backward}) wanted.push_back({op, static_cast<int16_t>(m)});
  EXPECT_EQ(schedule.program(0, micro_batches, Pass::train), wanted);
  EXPECT_EQ(schedule.slots(0, micro_batches), 1);
  EXPECT_EQ(schedule.chunks(), 1);
}

double largest_piece(const std::vector<double>& costs, const std::vector<int64_t>& first) {
  double largest = 0;
  for (size_t i = 0; i < first.size(); ++i) {
    double sum = 0;
    const int64_t end = i + 1 < first.size() ? first[i + 1] : static_cast<int64_t>(costs.size());
    for (int64_t u = first[i]; u < end; ++u) sum += costs[static_cast<size_t>(u)];
    largest = std::max(largest, sum);
  }
  return largest;
}

// The smallest possible largest piece, by trying every cut.
double best_possible(const std::vector<double>& costs, size_t begin, int64_t pieces) {
  double rest = 0, best = std::numeric_limits<double>::infinity();
  for (size_t u = begin; u < costs.size(); ++u) rest += costs[u];
  if (pieces == 1) return rest;
  double piece = 0;
  for (size_t end = begin + 1; end + static_cast<size_t>(pieces) - 1 <= costs.size(); ++end) {
    piece += costs[end - 1];
    if (piece >= best) break;
    best = std::min(best, std::max(piece, best_possible(costs, end, pieces - 1)));
  }
  return best;
}

void check_partition(const Schedule& schedule) {
  const int64_t pieces = schedule.stages() * schedule.chunks();
  std::mt19937 random(static_cast<unsigned>(pieces));
  for (int64_t units = pieces; units < pieces + 6; ++units) {
    SCOPED_TRACE(concat(pieces, " pieces of ", units, " units"));
    std::vector<double> costs;
    for (int64_t u = 0; u < units; ++u) costs.push_back(static_cast<double>(1 + random() % 20));
    const std::vector<int64_t> first = schedule.partition(costs);
    ASSERT_EQ(static_cast<int64_t>(first.size()), pieces);
    EXPECT_EQ(first.front(), 0);
    for (size_t i = 1; i < first.size(); ++i) EXPECT_GT(first[i], first[i - 1]);
    EXPECT_LT(first.back(), units);
    if (schedule.chunks() == 1) {
      EXPECT_DOUBLE_EQ(largest_piece(costs, first), best_possible(costs, 0, pieces));
    }
    EXPECT_EQ(schedule.partition(costs), first);
  }
}

void check_programs(const ScheduleMaker& make, int64_t most_stages, const std::vector<int64_t>& chunks,
                    const BubbleOf& bubble_of) {
  for (int64_t stages = 1; stages <= most_stages; ++stages)
    for (const int64_t chunk : chunks) {
      const std::shared_ptr<Schedule> schedule = make(stages, chunk);
      ASSERT_EQ(schedule->stages(), stages);
      ASSERT_EQ(schedule->chunks(), stages > 1 ? chunk : 1);
      for (int64_t m = 1; m <= kMostMicroBatches; ++m) {
        check_schedule(*schedule, m, bubble_of);
        check_asked_again(*schedule, m);
        if (stages == 1) check_one_stage(*schedule, m);
      }
    }
}

void check_partitions(const ScheduleMaker& make, int64_t most_stages, const std::vector<int64_t>& chunks) {
  for (int64_t stages = 1; stages <= most_stages; ++stages)
    for (const int64_t chunk : chunks)
      if (stages * chunk <= 12) check_partition(*make(stages, chunk));
}

// By two stages, if it has some.
void check_decorated_run(const Subject& subject) {
  const bool cuts = takes_option(subject, "stages");
  Value options = subject.options;
  if (cuts) options.set("stages", 2);
  const Value section = Value::Object{{"type", subject.name}, {"params", options}};
  expect_decorators_compose({.sections = Value::Object{{"pipeline", section}}, .ranks = cuts ? 2 : 1}, subject.train);
}

int64_t most_stages_of(const Subject& subject) {
  if (takes_option(subject, "stages")) return kMostStages;
  return left_out("several stages", "the plugin has no option \"stages\""), 1;
}
std::vector<int64_t> chunks_of(const Subject& subject) {
  if (takes_option(subject, "chunks")) return {2, 3, 4};
  return left_out("several chunks per stage", "the plugin has no option \"chunks\""), std::vector<int64_t>{1};
}

}  // namespace

bool takes_option(const Subject& subject, const char* option) {
  return installed_plugins().options(subject.kind, subject.name).find(option) != nullptr;
}

ScheduleMaker schedule_maker(const Subject& subject) {
  return [subject, host = std::make_shared<Host>()](int64_t stages, int64_t chunks) {
    Value options = subject.options;
    if (takes_option(subject, "stages")) options.set("stages", stages);
    if (takes_option(subject, "chunks")) options.set("chunks", chunks);
    return installed_plugins().make<Schedule>(subject.kind, subject.name, options, host->services);
  };
}

std::string computations_of(const Schedule& schedule, int64_t stage, int64_t micro_batches) {
  std::string text;
  for (const Instr& i : schedule.program(stage, micro_batches, Pass::train))
    if (i.op == Op::forward || i.op == Op::backward || i.op == Op::backward_input || i.op == Op::backward_weight)
      text += (text.empty() ? "" : " ") + instr_text(i, schedule.chunks() > 1);
  return text;
}

PlanRecord planned(Schedule& schedule, int64_t accumulation, int64_t world_size) {
  ModelFacts model;
  model.hidden_size = 16;
  RunFacts run;
  run.world_size = world_size, run.micro_batch_size = 2, run.seq_length = 32, run.accumulation = accumulation;
  PlanRecord ctx(model, run);
  schedule.plan(ctx);
  return ctx;
}

void check_plan(const ScheduleMaker& make) {
  const PlanRecord four = planned(*make(4, 1), 8);
  ASSERT_EQ(four.claims().size(), 1u);
  EXPECT_EQ(four.claims()[0].axis, Schedule::kAxis);
  EXPECT_EQ(four.claims()[0].size, 4);
  EXPECT_EQ(four.claims()[0].place, PlanContext::kStagePlace);
  EXPECT_FALSE(four.claims()[0].joins_gradients());
  EXPECT_TRUE(four.capturables().empty()) << "messages between stages are recorded where somebody asks for it alone";
  EXPECT_TRUE(four.refusals().empty());
  const PlanRecord one = planned(*make(1, 1), 8);
  EXPECT_TRUE(one.claims().empty() && one.costs().empty() && one.traffics().empty());
  EXPECT_EQ(one.capturables().size(), 1u);
}

Suite schedule_suite() {
  return {
      {"programs_of_all_stages_fit_together",
       [](const Subject& subject) {
         check_programs(schedule_maker(subject), most_stages_of(subject), chunks_of(subject), {});
       }},
      {"cuts_any_model",
       [](const Subject& subject) {
         check_partitions(schedule_maker(subject), most_stages_of(subject), chunks_of(subject));
       }},
      {"claims_the_axis_of_stages",
       [](const Subject& subject) {
         if (takes_option(subject, "stages")) check_plan(schedule_maker(subject));
       }},
      {"decorators_compose", check_decorated_run},
  };
}

void run_schedule_suite(const ScheduleMaker& make, int64_t most_stages, const std::vector<int64_t>& chunks,
                        const BubbleOf& bubble_of) {
  check_programs(make, most_stages, chunks, bubble_of);
  check_partitions(make, most_stages, chunks);
}

}  // namespace drivetrain::test
