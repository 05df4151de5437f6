// Whole parameters from the parts of several ranks, as threads over communicator/local.
#include "state/gather.h"

#include <gtest/gtest.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>

#include <cstring>
#include <thread>

#include <drivetrain/services.h>

#include "compose/rendezvous.h"
#include "plugin/registry.h"
#include "unit/state_files.h"

namespace drivetrain {
namespace {

using namespace test;
using Cuts = std::vector<std::vector<std::pair<int64_t, int64_t>>>;  // by rank: [begin, end) of the parts it holds

struct QuietLog : Log {
  void write(LogLevel, const std::string&) override {}
  void progress(const std::string&) override {}
};

const Registry& built_plugins() {
  static const Registry registry(SearchPath::standard({}, {}, ""));
  return registry;
}

// Runs `body` with every rank's mesh; what each threw.
std::vector<std::string> on_ranks(const std::vector<Axis>& axes, const std::function<void(const Mesh&)>& body) {
  int64_t world = 1;
  for (const Axis& axis : axes) world *= axis.size;
  const auto store = make_local_store();
  std::vector<std::string> errors(static_cast<size_t>(world));
  std::vector<std::thread> threads;
  for (int64_t r = 0; r < world; ++r)
    threads.emplace_back([&, r] {
      QuietLog log;
      const Services services{log, *store, r, world, r, world, at::Device(at::kCPU), 0, {}, nullptr};
      std::shared_ptr<Communicator> communicator;
      try {
        communicator = built_plugins().create<Communicator>("local", nullptr, services);
        body(Mesh(axes, r, world, communicator));
      } catch (const Error& e) {
        errors[static_cast<size_t>(r)] = e.what();
        if (communicator) communicator->abort(e.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// Every sort of bits: small, large, both zeros, infinities, NaNs with a payload.
at::Tensor odd_values(int64_t count) {
  at::Tensor values = at::empty({count}, at::TensorOptions().dtype(at::kFloat));
  const uint32_t odd[] = {0x80000000u, 0x7fc12345u, 0xffffffffu, 0x00000001u,
                          0x7f800000u, 0xff800000u, 0x3f800001u, 0u};
  auto* out = static_cast<char*>(values.mutable_data_ptr());
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t word = i % 3 == 0 ? odd[i / 3 % 8] : static_cast<uint32_t>(i) * 2654435761u;
    std::memcpy(out + 4 * i, &word, 4);
  }
  return values;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

Trainable part(const std::string& name, const at::Tensor& whole, std::vector<int64_t> shape,
               std::pair<int64_t, int64_t> range, const std::vector<std::string>& axes) {
  Trainable t;
  t.layout = Layout::whole(shape);
  t.param = std::make_shared<Param>(name, t.layout, InitRule::zeros());
  t.layout.begin = range.first, t.layout.end = range.second, t.layout.flat_axes = axes;
  t.value = whole.narrow(0, range.first, range.second - range.first).clone();
  return t;
}

// Chunks of one part each, as an optimizer may be called.
std::vector<Trainables> parts(const std::string& name, const at::Tensor& whole, const std::vector<int64_t>& shape,
                              const std::vector<std::pair<int64_t, int64_t>>& ranges,
                              const std::vector<std::string>& axes) {
  std::vector<Trainables> chunks;
  for (const auto& range : ranges) chunks.push_back({part(name, whole, shape, range, axes)});
  return chunks;
}

TEST(ParamGather, joins_uneven_empty_and_several_parts_bit_for_bit) {
  const at::Tensor whole = odd_values(35);
  const Cuts cuts[] = {{{{0, 35}}, {{35, 35}}},
                       {{{0, 1}}, {{1, 35}}},
                       {{{0, 0}}, {{0, 20}, {20, 35}}},
                       {{{0, 7}, {14, 21}}, {{7, 14}, {21, 35}}},
                       {{{0, 12}}, {{12, 12}}, {{12, 34}}, {{34, 35}}},
                       {{{30, 35}}, {{0, 10}, {10, 10}, {10, 15}}, {{15, 30}}}};
  for (const Cuts& cut : cuts) {
    const auto errors = on_ranks({{"dp", static_cast<int64_t>(cut.size())}}, [&](const Mesh& mesh) {
      const ParamGather gather(parts("w", whole, {5, 7}, cut[static_cast<size_t>(mesh.rank())], {"dp"}), mesh,
                               at::kCPU);
      EXPECT_EQ(gather.shapes().at("w"), (std::vector<int64_t>{5, 7}));
      for (int again = 0; again < 2; ++again)
        EXPECT_TRUE(same_bits(gather.whole("w"), whole.view({5, 7}))) << "rank " << mesh.rank();
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
  }
}

TEST(ParamGather, joins_one_parameter_after_another_and_every_group_its_own) {
  const at::Tensor first = odd_values(12), second = odd_values(4);
  const auto errors = on_ranks({{"dp", 2}, {"replica", 2}}, [&](const Mesh& mesh) {
    const int64_t i = mesh.index("dp");
    std::vector<Trainables> all = parts("a", first, {12}, {{6 * i, 6 * i + 6}}, {"dp"});
    for (Trainables& chunk :
         parts("b", second, {2, 2}, {i == 0 ? std::pair<int64_t, int64_t>{0, 4} : std::pair<int64_t, int64_t>{4, 4}},
               {"dp"}))
      all.push_back(chunk);
    all.push_back({part("c", second, {4}, {0, 4}, {})});
    const ParamGather gather(all, mesh, at::kCPU);
    EXPECT_TRUE(same_bits(gather.whole("c"), second));
    EXPECT_TRUE(same_bits(gather.whole("b"), second.view({2, 2})));
    EXPECT_TRUE(same_bits(gather.whole("a"), first));
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(ParamGather, gives_float32_whatever_the_parts_are_held_in) {
  const at::Tensor numbers = at::arange(8, at::TensorOptions().dtype(at::kFloat));
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf, at::kDouble}) {
    const auto errors = on_ranks({{"dp", 2}}, [&](const Mesh& mesh) {
      const int64_t i = mesh.rank();
      const ParamGather shared(parts("w", numbers.to(type), {8}, {{4 * i, 4 * i + 4}}, {"dp"}), mesh, at::kCPU);
      EXPECT_TRUE(same_bits(shared.whole("w"), numbers));
      const ParamGather here(parts("w", numbers.to(type), {8}, {{0, 8}}, {}), mesh, at::kCPU);
      EXPECT_TRUE(same_bits(here.whole("w"), numbers));
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
  }
}

TEST(ParamGather, moves_nothing_that_is_whole_already) {
  const at::Tensor whole = odd_values(6);
  const Mesh mesh({{"dp", 4}}, 3, 4, nullptr);  // without a communicator
  Trainable t = part("w", whole, {2, 3}, {0, 6}, {});
  t.layout.end = -1;
  const at::Tensor out = ParamGather({{t}}, mesh, at::kCPU).whole("w");
  EXPECT_TRUE(same_bits(out, whole.view({2, 3})));
  EXPECT_EQ(out.const_data_ptr(), t.value.const_data_ptr());
}

TEST(ParamGather, refuses_parts_that_are_not_the_whole) {
  const at::Tensor whole = odd_values(10);
  for (const Cuts& cut : {Cuts{{{0, 4}}, {{5, 10}}}, Cuts{{{0, 6}}, {{5, 10}}}, Cuts{{{0, 0}}, {{0, 0}}}}) {
    const auto errors = on_ranks({{"dp", 2}}, [&](const Mesh& mesh) {
      ParamGather(parts("w", whole, {10}, cut[static_cast<size_t>(mesh.rank())], {"dp"}), mesh, at::kCPU).whole("w");
    });
    for (const std::string& error : errors)
      EXPECT_NE(error.find("elements together, it has 10"), std::string::npos) << error;
  }
  const Mesh mesh({}, 0, 1, nullptr);
  Trainable t = part("w", whole, {10}, {0, 10}, {});
  t.layout.end = 9;
  EXPECT_NE(error_of([&] { ParamGather({{t}}, mesh, at::kCPU); }).text.find("w: a part of 10 elements at 0 of 10"),
            std::string::npos);
  EXPECT_NE(error_of([&] { ParamGather({}, mesh, at::kCPU).whole("w"); }).text.find("w is not among"),
            std::string::npos);
}

TEST(ParamGather, does_not_join_what_tensor_parallelism_cut) {
  const Mesh mesh({{"tp", 2}}, 0, 2, nullptr);
  Trainable t = part("w", odd_values(4), {4, 2}, {0, 4}, {});
  t.layout.dims = {{{"tp"}, {}}, {}};
  const Caught caught = error_of([&] { ParamGather({{t}}, mesh, at::kCPU); });
  EXPECT_EQ(caught.code, ErrorCode::config);
  EXPECT_NE(caught.text.find("tensor parallelism"), std::string::npos);
  EXPECT_NE(caught.text.find("(w). Set save_final to false"), std::string::npos);
}

}  // namespace
}  // namespace drivetrain
