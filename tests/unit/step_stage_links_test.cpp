#include "step/stage_links.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <functional>

#include "support/mesh_ranks.h"

namespace drivetrain {
namespace {

constexpr int64_t kMicroBatches = 5;

// Every stage has two chunks; forwards of all micro-batches chunk by chunk, then the backwards.
// `reversed`: gradients leave in the opposite order of micro-batches.
class TwoChunks : public Schedule {
 public:
  TwoChunks(int64_t stages, bool reversed) : stages_(stages), reversed_(reversed) {}
  int64_t stages() const override { return stages_; }
  int64_t chunks() const override { return 2; }
  std::vector<int64_t> partition(const std::vector<double>&) const override { return {}; }
  int64_t slots(int64_t, int64_t micro_batches) const override { return 2 * micro_batches; }

  Program program(int64_t stage, int64_t micro_batches, Pass) const override {
    Program list;
    for (int64_t chunk = 0; chunk < 2; ++chunk)
      for (int64_t m = 0; m < micro_batches; ++m) {
        if (piece(stage, chunk) > 0) list.push_back(instr(Op::recv_forward, m, chunk));
        if (piece(stage, chunk) + 1 < 2 * stages_) list.push_back(instr(Op::send_forward, m, chunk));
      }
    for (int64_t chunk = 2; chunk-- > 0;)
      for (int64_t i = 0; i < micro_batches; ++i) {
        const int64_t m = reversed_ ? micro_batches - 1 - i : i;
        if (piece(stage, chunk) + 1 < 2 * stages_) list.push_back(instr(Op::recv_backward, m, chunk));
        if (piece(stage, chunk) > 0) list.push_back(instr(Op::send_backward, m, chunk));
      }
    return list;
  }

 private:
  static Instr instr(Op op, int64_t micro, int64_t chunk) {
    Instr i{op};
    i.micro = static_cast<int16_t>(micro), i.chunk = static_cast<int16_t>(chunk);
    return i;
  }
  const int64_t stages_;
  const bool reversed_;
};

// A value that tells who made it for what.
double value(const Schedule& schedule, int64_t stage, int64_t chunk, int64_t micro, Direction direction) {
  return static_cast<double>(1000 * schedule.piece(stage, chunk) + micro) * (direction == Direction::forward ? 1 : -1);
}

// Two tensors of different types, large and small, as a unit may hand on; sizes by the sender's piece.
Tensors message(const Schedule& schedule, int64_t stage, int64_t chunk, int64_t micro, Direction direction) {
  const double v = value(schedule, stage, chunk, micro, direction);
  const int64_t piece = schedule.piece(stage, chunk);
  return {at::full({3, 100 * (piece + 1)}, v, at::TensorOptions(at::kDouble)),
          at::full({2}, v, at::TensorOptions(at::kFloat))};
}

struct Neighbour {
  int64_t stage, chunk;
};
Neighbour neighbour(const Schedule& schedule, int64_t stage, int64_t chunk, int64_t step) {
  const int64_t piece = schedule.piece(stage, chunk) + step;
  return {piece % schedule.stages(), piece / schedule.stages()};
}

void run_instr(StageLinks& links, const Schedule& schedule, int64_t stage, const Instr& i) {
  const bool forward = i.op == Op::recv_forward || i.op == Op::send_forward;
  const Direction direction = forward ? Direction::forward : Direction::backward;
  if (i.op == Op::send_forward || i.op == Op::send_backward)
    return links.send(direction, i.micro, i.chunk, message(schedule, stage, i.chunk, i.micro, direction));
  const Neighbour from = neighbour(schedule, stage, i.chunk, forward ? -1 : 1);
  const Tensors got = links.receive(direction, i.micro, i.chunk),
                wanted = message(schedule, from.stage, from.chunk, i.micro, direction);
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t t = 0; t < got.size(); ++t) {
    ASSERT_EQ(got[t].sizes(), wanted[t].sizes());
    ASSERT_EQ(got[t].scalar_type(), wanted[t].scalar_type());
    EXPECT_TRUE(at::allclose(got[t], wanted[t], 0, 0)) << "micro-batch " << i.micro << " of chunk " << i.chunk;
  }
}

// `planned`: what the plan says of messages in memory; null in the first run, which posts no receives ahead.
void run_program(StageLinks& links, const Schedule& schedule, int64_t stage, HeldMessages* planned = nullptr) {
  links.begin(Pass::train);
  if (planned) {
    EXPECT_EQ(planned->count(), links.held()) << "stage " << stage << " begins";
  }
  for (const Instr& i : schedule.program(stage, kMicroBatches, Pass::train)) {
    run_instr(links, schedule, stage, i);
    if (!planned) continue;
    planned->pass(i);
    EXPECT_EQ(planned->count(), links.held()) << "stage " << stage << ", micro-batch " << i.micro;
  }
  links.wait_for_peers();
}

void all_arrive(int64_t stages, bool reversed) {
  test::expect_on_ranks({{.name = "tp", .size = 2}, {.name = Schedule::kAxis, .size = stages}}, [=](const Mesh& mesh) {
    const auto schedule = std::make_shared<TwoChunks>(stages, reversed);
    StageLinks links(mesh, *schedule, kMicroBatches, at::Device(at::kCPU));
    const int64_t stage = mesh.index(Schedule::kAxis);
    run_program(links, *schedule, stage);
    for (int step = 1; step < 3; ++step) {
      HeldMessages planned(*schedule, stage, kMicroBatches);
      run_program(links, *schedule, stage, &planned);
    }
  });
}

TEST(StageLinks, everything_arrives_where_two_stages_are_each_others_next_and_last) { all_arrive(2, false); }
TEST(StageLinks, everything_arrives_over_three_stages) { all_arrive(3, false); }
TEST(StageLinks, gradients_may_come_in_another_order_than_activations_went) {
  all_arrive(2, true);
  all_arrive(3, true);
}

// Larger than what a communicator takes along without its receiver, and more of them than receives are posted ahead.
TEST(StageLinks, sends_do_not_wait_for_receivers) {
  constexpr int64_t kMany = 21;
  test::expect_on_ranks({{.name = Schedule::kAxis, .size = 2}}, [](const Mesh& mesh) {
    const TwoChunks schedule(2, false);
    StageLinks links(mesh, schedule, kMany, at::Device(at::kCPU));
    const int64_t stage = mesh.index(Schedule::kAxis);
    const auto large = [](int64_t from, int64_t micro) {
      return at::full({300'000}, static_cast<double>(100 * from + micro));
    };
    for (int step = 0; step < 2; ++step) {
      links.begin(Pass::train);
      // Stage 0 sends piece 0 on, stage 1 piece 1, before either receives.
      for (int64_t m = 0; m < kMany; ++m) links.send(Direction::forward, m, 0, {large(stage, m)});
      for (int64_t m = 0; m < kMany; ++m) {
        const Tensors got = links.receive(Direction::forward, m, stage == 0 ? 1 : 0);
        EXPECT_TRUE(at::allclose(got.at(0), large(1 - stage, m), 0, 0));
      }
      links.wait_for_peers();
    }
  });
}

TEST(StageLinks, shapes_that_change_within_a_run_are_an_error_that_names_the_stage) {
  const auto errors = test::on_ranks({{.name = Schedule::kAxis, .size = 2}}, [](const Mesh& mesh) {
    const auto schedule = std::make_shared<TwoChunks>(2, false);
    StageLinks links(mesh, *schedule, kMicroBatches, at::Device(at::kCPU));
    links.begin(Pass::train);
    if (mesh.index(Schedule::kAxis) == 1) {
      links.receive(Direction::forward, 0, 0);
      return;
    }
    links.send(Direction::forward, 0, 0, {at::full({2}, 1.0)});
    links.send(Direction::forward, 1, 0, {at::full({3}, 1.0)});
  });
  EXPECT_NE(errors[0].find("what stage 0 hands on has changed its shape within a run"), std::string::npos) << errors[0];
}

TEST(StageLinks, a_message_that_no_program_names_is_an_error) {
  const auto errors = test::on_ranks({{.name = Schedule::kAxis, .size = 2}}, [](const Mesh& mesh) {
    const auto schedule = std::make_shared<TwoChunks>(2, false);
    StageLinks links(mesh, *schedule, kMicroBatches, at::Device(at::kCPU));
    links.begin(Pass::train);
    links.receive(Direction::forward, kMicroBatches, mesh.index(Schedule::kAxis) == 0 ? 1 : 0);
  });
  for (const std::string& error : errors) EXPECT_NE(error.find("which no stage sends"), std::string::npos) << error;
}

TEST(Mesh, ranks_along_axes_are_those_of_their_group) {
  test::expect_on_ranks({{.name = "tp", .size = 2}, {.name = "dp", .size = 2}, {.name = "pp", .size = 2}},
                        [](const Mesh& mesh) {
                          for (const std::vector<std::string>& axes :
                               {std::vector<std::string>{"tp"}, {"dp", "pp"}, {"pp", "tp"}, {}, {"absent"}})
                            EXPECT_EQ(mesh.ranks(axes), mesh.group(axes)->ranks());
                        });
}

TEST(Mesh, a_subgroup_has_the_named_coordinates_of_one_line) {
  test::expect_on_ranks({{.name = "tp", .size = 2}, {.name = "pp", .size = 3}}, [](const Mesh& mesh) {
    if (mesh.index("pp") == 1) return;
    const GroupPtr ends = mesh.subgroup("pp", {0, 2}, "ends");
    EXPECT_EQ(ends->ranks(), (std::vector<int64_t>{mesh.index("tp"), 4 + mesh.index("tp")}));
  });
}

// Counts the receives of one rank; a header says one number of float32.
struct CountingGroup : Group {
  explicit CountingGroup(std::vector<int64_t> of) : members(std::move(of)) {}
  int64_t rank() const override { return 0; }
  const std::vector<int64_t>& ranks() const override { return members; }
  const std::string& label() const override { return name; }
  at::Tensor allocate(int64_t, at::ScalarType) override { return {}; }
  WorkPtr all_reduce(at::Tensor) override { return completed_work(); }
  WorkPtr all_gather(at::Tensor, at::Tensor) override { return completed_work(); }
  WorkPtr reduce_scatter(at::Tensor, at::Tensor) override { return completed_work(); }
  WorkPtr all_to_all(at::Tensor, at::Tensor) override { return completed_work(); }
  WorkPtr all_to_all(at::Tensor, at::Tensor, const std::vector<int64_t>&, const std::vector<int64_t>&) override {
    return completed_work();
  }
  WorkPtr broadcast(at::Tensor, int64_t) override { return completed_work(); }
  WorkPtr send(at::Tensor, int64_t) override { return completed_work(); }
  WorkPtr recv(at::Tensor t, int64_t) override {
    if (t.scalar_type() == at::kLong) {
      const int64_t header[] = {1, static_cast<int64_t>(at::kFloat), 1, 1};
      std::copy(header, header + 4, t.mutable_data_ptr<int64_t>());
    } else {
      ++received;
    }
    return completed_work();
  }
  void batch_begin() override {}
  void batch_end() override {}
  void barrier() override {}
  const std::vector<int64_t> members;
  const std::string name = "counting";
  static inline int received = 0;
};

struct CountingCommunicator : Communicator {
  GroupPtr make_group(const std::vector<int64_t>& ranks, const std::string&) override {
    return std::make_shared<CountingGroup>(ranks);
  }
  void abort(const std::string&) noexcept override {}
};

// Kernels are loaded in the first run, and a receive that spins on the device may be in their way.
TEST(StageLinks, a_programs_first_run_posts_no_receive_ahead) {
  const Mesh mesh({{.name = Schedule::kAxis, .size = 2}}, 0, 2, std::make_shared<CountingCommunicator>());
  const TwoChunks schedule(2, false);
  StageLinks links(mesh, schedule, kMicroBatches, at::Device(at::kCPU));
  const auto received_at = [&](const std::function<void()>& call) {
    const int before = CountingGroup::received;
    call();
    return CountingGroup::received - before;
  };
  EXPECT_EQ(received_at([&] { links.begin(Pass::train); }), 0);
  for (int64_t micro = 0; micro < kMicroBatches; ++micro)
    EXPECT_EQ(received_at([&] { links.receive(Direction::forward, micro, 1); }), 1) << micro;
  EXPECT_EQ(received_at([&] { links.begin(Pass::train); }), 2);
  EXPECT_EQ(received_at([&] { links.receive(Direction::forward, 0, 1); }), 1);
}

}  // namespace
}  // namespace drivetrain
