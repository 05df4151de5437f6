// Whole parameters from the parts of several ranks, as threads over communicator/local.
#include "train/gather.h"

#include <gtest/gtest.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>

#include <cstring>

#include "state/initial_values.h"
#include "support/mesh_ranks.h"
#include "support/toy_shards.h"
#include "unit/state_files.h"

namespace drivetrain {
namespace {

using namespace test;
using Cuts = std::vector<std::vector<std::pair<int64_t, int64_t>>>;  // by rank: [begin, end) of the parts it holds

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

// What the model's list says of parameters that this rank holds.
std::vector<ParamPtr> params_of(const std::vector<Trainables>& chunks) {
  std::vector<ParamPtr> list;
  for (const Trainables& chunk : chunks)
    for (const Trainable& t : chunk) list.push_back(t.param);
  return list;
}

ParamGather gather_of(const std::vector<Trainables>& chunks, const Mesh& mesh) {
  return {chunks, params_of(chunks), mesh, at::kCPU};
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
      const ParamGather gather =
          gather_of(parts("w", whole, {5, 7}, cut[static_cast<size_t>(mesh.rank())], {"dp"}), mesh);
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
    const ParamGather gather = gather_of(all, mesh);
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
      const ParamGather shared = gather_of(parts("w", numbers.to(type), {8}, {{4 * i, 4 * i + 4}}, {"dp"}), mesh);
      EXPECT_TRUE(same_bits(shared.whole("w"), numbers));
      const ParamGather here = gather_of(parts("w", numbers.to(type), {8}, {{0, 8}}, {}), mesh);
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
  const at::Tensor out = gather_of({{t}}, mesh).whole("w");
  EXPECT_TRUE(same_bits(out, whole.view({2, 3})));
  EXPECT_EQ(out.const_data_ptr(), t.value.const_data_ptr());
}

TEST(ParamGather, refuses_parts_that_are_not_the_whole) {
  const at::Tensor whole = odd_values(10);
  for (const Cuts& cut : {Cuts{{{0, 4}}, {{5, 10}}}, Cuts{{{0, 6}}, {{5, 10}}}, Cuts{{{0, 0}}, {{0, 0}}}}) {
    const auto errors = on_ranks({{"dp", 2}}, [&](const Mesh& mesh) {
      gather_of(parts("w", whole, {10}, cut[static_cast<size_t>(mesh.rank())], {"dp"}), mesh).whole("w");
    });
    for (const std::string& error : errors)
      EXPECT_NE(error.find("elements together, it has 10"), std::string::npos) << error;
  }
  const Mesh mesh({}, 0, 1, nullptr);
  Trainable t = part("w", whole, {10}, {0, 10}, {});
  t.layout.end = 9;
  EXPECT_NE(error_of([&] { gather_of({{t}}, mesh); }).text.find("w: a part of 10 elements, its layout names 9"),
            std::string::npos);
  EXPECT_NE(error_of([&] { gather_of({}, mesh).whole("w"); }).text.find("w is not a parameter of the model"),
            std::string::npos);
  t.layout.end = 10;
  EXPECT_NE(error_of([&] { ParamGather({{t}}, {}, mesh, at::kCPU); }).text.find("w is held by this rank and not in"),
            std::string::npos);
  EXPECT_NE(
      error_of([&] { ParamGather({}, {t.param}, mesh, at::kCPU).whole("w"); }).text.find("w is not among what this"),
      std::string::npos);
}

// Padded, fused and cut by columns over tp, in flat ranges over dp, on several stages, with copies: every rank gets all
// of it.
TEST(ParamGather, joins_what_is_cut_in_every_way_at_once) {
  for (const bool shared : {true, false}) {
    for (const auto& axes : toy_meshes()) {
      expect_on_ranks(axes, [&](const Mesh& mesh) {
        const ToyShards toy(mesh, shared);
        fill_initial_values(toy.chunks, kToySeed, mesh);
        const ParamGather gather(toy.chunks, toy.model, mesh, at::kCPU);
        EXPECT_EQ(gather.shapes().size(), toy.model.size());
        for (const ParamPtr& param : toy.model) {
          EXPECT_EQ(gather.shapes().at(param->name), param->layout.global_shape);
          EXPECT_TRUE(same_bits(gather.whole(param->name), ToyShards::whole(*param)))
              << param->name << " on rank " << mesh.rank();
        }
      });
    }
  }
}

TEST(ParamGather, every_bit_survives_cuts_and_stages) {
  const at::Tensor whole = odd_values(48);
  expect_on_ranks({{"tp", 2}, {"pp", 2}}, [&](const Mesh& mesh) {
    const int64_t tp = mesh.index("tp");
    Trainable t = part("w", whole, {6, 8}, {0, 24}, {});
    t.layout.dims = {{}, {{"tp"}, {}}};
    t.layout.end = -1;
    t.value = whole.view({6, 8}).narrow(1, 4 * tp, 4).clone().view({-1});
    const std::vector<Trainables> held =
        mesh.index("pp") == 1 ? std::vector<Trainables>{{t}} : std::vector<Trainables>{};
    EXPECT_TRUE(same_bits(ParamGather(held, {t.param}, mesh, at::kCPU).whole("w"), whole.view({6, 8})));
  });
}

TEST(ParamGather, a_parameter_that_no_stage_holds_is_told_by_all) {
  const auto errors = on_ranks({{"pp", 2}}, [&](const Mesh& mesh) {
    const auto param = std::make_shared<Param>("w", Layout::whole({4}), InitRule::ones());
    ParamGather({}, {param}, mesh, at::kCPU).whole("w");
  });
  for (const std::string& error : errors)
    EXPECT_NE(error.find("w is not among what any pipeline stage holds"), std::string::npos) << error;
}

}  // namespace
}  // namespace drivetrain
