// The graph of every built schedule: who is beside whom, what waits for what, and that nothing waits forever.
#include <drivetrain/toolkit/pipeline/schedule_graph.h>

#include <set>

#include "support/plugin_under_test.h"
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

using Place = ScheduleGraph::Place;
using Messages = ScheduleGraph::Messages;

bool takes(const std::string& name, const char* option) {
  return built_plugins().options(Schedule::kKind, name).find(option);
}

std::shared_ptr<Schedule> make(const std::string& name, int64_t stages, int64_t chunks) {
  static Host host;
  Value options = Value::object();
  if (takes(name, "stages")) options.set("stages", stages);
  if (takes(name, "chunks")) options.set("chunks", chunks);
  Problems problems;
  const auto parsed = built_plugins().options(Schedule::kKind, name).parse(options, name, "params", problems);
  problems.throw_if_any();
  return built_plugins().create<Schedule>(name, parsed.get(), host.services);
}

// Calls `check` with every built schedule in several sizes.
template <class Check>
void each_schedule(const Check& check) {
  for (const std::string& name : built_plugins().names(Schedule::kKind))
    for (const int64_t stages : {1, 2, 3, 8})
      for (const int64_t chunks : {1, 2, 3}) {
        if ((stages > 1 && !takes(name, "stages")) || (chunks > 1 && !takes(name, "chunks"))) continue;
        SCOPED_TRACE(concat(name, ", ", stages, " stages of ", chunks));
        check(*make(name, stages, chunks));
      }
}

// Calls `check` with the programs of all stages, training and forward only.
template <class Check>
void each_step(const Schedule& schedule, const Check& check) {
  for (const int64_t micro_batches : {1, 3, 8, 17})
    for (const Pass pass : {Pass::train, Pass::forward_only}) {
      SCOPED_TRACE(concat(micro_batches, " micro-batches", pass == Pass::train ? "" : ", forward only"));
      std::vector<Program> programs;
      for (int64_t s = 0; s < schedule.stages(); ++s) programs.push_back(schedule.program(s, micro_batches, pass));
      check(programs, micro_batches);
    }
}

// Of different lengths, so that no two ways through a step take the same time.
std::vector<PieceTime> uneven_times(int64_t pieces) {
  std::vector<PieceTime> times;
  for (int64_t i = 0; i < pieces; ++i) times.push_back({1 + 0.1 * i, 1.3 + 0.07 * (i % 3), 0.8 + 0.05 * (i % 5)});
  return times;
}

TEST(ScheduleGraph, every_piece_has_one_place_and_the_pieces_beside_it_as_neighbours) {
  each_schedule([](const Schedule& schedule) {
    const ScheduleGraph graph(schedule);
    ASSERT_EQ(graph.pieces(), schedule.stages() * schedule.chunks());
    for (int64_t piece = 0; piece < graph.pieces(); ++piece) {
      const Place here = graph.place(piece);
      EXPECT_EQ(schedule.piece(here.stage, here.chunk), piece);
      const auto next = graph.receiver(here, Direction::forward), previous = graph.sender(here, Direction::forward);
      EXPECT_EQ(next ? graph.piece(*next) : graph.pieces(), piece + 1);
      EXPECT_EQ(previous ? graph.piece(*previous) : -1, piece - 1);
      EXPECT_EQ(graph.sender(here, Direction::backward), next) << "gradients come back from where activations went";
      EXPECT_EQ(graph.receiver(here, Direction::backward), previous);
    }
    EXPECT_EQ(graph.receiver({0, graph.chunks()}, Direction::forward), std::nullopt) << "there is no such chunk";
  });
}

TEST(ScheduleGraph, programs_send_to_and_receive_from_their_neighbours_and_nobody_else) {
  each_schedule([](const Schedule& schedule) {
    const ScheduleGraph graph(schedule);
    each_step(schedule, [&](const std::vector<Program>& programs, int64_t) {
      std::set<std::pair<int64_t, Op>> found, wanted;
      bool backward = false;
      for (int64_t s = 0; s < graph.stages(); ++s)
        for (const Instr& i : programs[s]) {
          EXPECT_EQ(graph.peer(s, i).has_value(), sends(i.op) || receives(i.op));
          if (!computes(i.op) && i.op != Op::load) found.insert({graph.piece({s, i.chunk}), i.op});
          backward = backward || i.op == Op::backward || i.op == Op::backward_input;
        }
      for (int64_t piece = 0; piece + 1 < graph.pieces(); ++piece) {
        wanted.insert({{piece, Op::send_forward}, {piece + 1, Op::recv_forward}});
        if (backward) wanted.insert({{piece + 1, Op::send_backward}, {piece, Op::recv_backward}});
      }
      EXPECT_EQ(found, wanted);
    });
  });
}

TEST(ScheduleGraph, every_receive_has_its_send_and_nothing_waits_forever) {
  each_schedule([](const Schedule& schedule) {
    const ScheduleGraph graph(schedule);
    each_step(schedule, [&](const std::vector<Program>& programs, int64_t micro_batches) {
      const StepOrder order = graph.order(programs, micro_batches, Messages::in_programs);
      EXPECT_TRUE(order.waiting.empty());
      std::vector<Program> walked(programs.size());
      std::set<int64_t> sent, received;
      for (size_t n = 0; n < order.nodes.size(); ++n) {
        const StepOrder::Node& node = order.nodes[n];
        walked.at(node.stage).push_back(node.instr);
        if (sends(node.instr.op)) sent.insert(n);
        ASSERT_EQ(node.reads >= 0, receives(node.instr.op));
        if (node.reads < 0) continue;
        ASSERT_LT(node.reads, static_cast<int64_t>(n)) << "it would wait for what comes later";
        const StepOrder::Node& source = order.nodes[node.reads];
        EXPECT_TRUE(received.insert(node.reads).second) << "two receives of one message";
        EXPECT_EQ(source.instr.micro, node.instr.micro);
        EXPECT_EQ(direction_of(source.instr.op), direction_of(node.instr.op));
        EXPECT_EQ(graph.peer(node.stage, node.instr), (Place{source.stage, source.instr.chunk}));
        EXPECT_EQ(graph.peer(source.stage, source.instr), (Place{node.stage, node.instr.chunk}));
      }
      EXPECT_EQ(walked, programs);
      EXPECT_EQ(received, sent) << "a message that nobody receives";
    });
  });
}

TEST(ScheduleGraph, computations_alone_take_the_time_that_they_take_with_messages) {
  each_schedule([](const Schedule& schedule) {
    const ScheduleGraph graph(schedule);
    each_step(schedule, [&](std::vector<Program> programs, int64_t micro_batches) {
      const std::vector<PieceTime> times = uneven_times(graph.pieces());
      std::vector<double> ends;
      const double with_messages = graph.order(programs, micro_batches, Messages::in_programs).run(times, ends);
      for (Program& program : programs) std::erase_if(program, [](const Instr& i) { return !computes(i.op); });
      const StepOrder order = graph.order(programs, micro_batches, Messages::implied);
      ASSERT_TRUE(order.waiting.empty());
      EXPECT_EQ(order.run(times, ends), with_messages);
      for (size_t n = 0; n < ends.size(); ++n)
        if (const int64_t source = order.nodes[n].reads; source >= 0) {
          EXPECT_GT(ends[n], ends[source]);
        }
    });
  });
}

// Stage 0 computes both micro-batches before it sends the first.
TEST(ScheduleGraph, a_receive_waits_for_the_send_and_not_for_the_computation) {
  const auto schedule = make("gpipe", 2, 1);
  const std::vector<Program> programs = {
      {{Op::forward, 0}, {Op::forward, 1}, {Op::send_forward, 0}, {Op::send_forward, 1}},
      {{Op::recv_forward, 0}, {Op::forward, 0}, {Op::recv_forward, 1}, {Op::forward, 1}}};
  std::vector<double> ends;
  EXPECT_EQ(ScheduleGraph(*schedule).order(programs, 2, Messages::in_programs).run({{}, {}}, ends), 4);
}

TEST(ScheduleGraph, a_backward_of_the_last_piece_waits_for_its_forward) {
  const auto schedule = make("gpipe", 2, 1);
  const std::vector<Program> programs = {{{Op::forward}, {Op::backward}}, {{Op::backward}, {Op::forward}}};
  const StepOrder order = ScheduleGraph(*schedule).order(programs, 1, Messages::implied);
  ASSERT_EQ(order.nodes.size(), 1u);
  ASSERT_EQ(order.waiting.size(), 2u);
  EXPECT_EQ(order.waiting[0].at, 1);
  EXPECT_EQ(order.waiting[0].wanted.direction, Direction::backward);
  EXPECT_EQ(order.waiting[1].at, 0);
  EXPECT_EQ(order.waiting[1].wanted.direction, Direction::forward);
  for (const StepOrder::Wait& wait : order.waiting) EXPECT_EQ(wait.wanted.piece, 1);
}

}  // namespace
}  // namespace drivetrain::test
