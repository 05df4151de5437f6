// Whole matrices at owners, from parts of every sort, with ranks as threads over communicator/local.
#include <drivetrain/toolkit/sharding/whole_tensors.h>

#include <gtest/gtest.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <atomic>
#include <mutex>

#include "support/mesh_ranks.h"

namespace drivetrain {
namespace {

using namespace test;

const auto kFloat = at::TensorOptions().dtype(at::kFloat);

// A parameter of the toy model: its shape, how it is cut, and what it is fused of.
struct Toy {
  const char* name;
  std::vector<int64_t> shape;
  std::vector<DimSplit> dims = {};
  std::vector<int64_t> blocks = {};
};

int64_t numel_of(const std::vector<int64_t>& shape) { return Layout::whole(shape).global_numel(); }

// Element i is i plus what tells parameters apart; all are small whole numbers, exact in float32.
at::Tensor values_of(const Toy& toy) {
  return at::arange(numel_of(toy.shape), kFloat).add_(static_cast<double>(std::string(toy.name).back()) * 1000);
}

// What a rank holds of a parameter: [begin, end) of its local slice in several pieces.
Trainables pieces_of(const Toy& toy, const Mesh& mesh, const std::vector<std::string>& flat_axes) {
  Layout layout = Layout::whole(toy.shape);
  layout.dims = toy.dims;
  const auto param = std::make_shared<Param>(toy.name, layout, InitRule::zeros());
  param->blocks = toy.blocks;
  const int64_t local = layout.local_numel(mesh);
  int64_t ranks = 1, index = 0;
  for (const std::string& axis : flat_axes) index += ranks * mesh.index(axis), ranks *= mesh.size(axis);
  // Uneven: the first rank has most, some may have nothing.
  const auto cut = [&](int64_t i) { return i == 0 ? 0 : i >= ranks ? local : std::min(local, local / 2 + 3 * i); };
  const int64_t begin = cut(index), end = cut(index + 1), middle = begin + (end - begin) / 3;
  Trainables list;
  for (const auto& [first, last] : {std::pair{begin, middle}, {middle, end}}) {
    if (first == last && last != end) continue;
    Trainable t;
    t.param = param, t.layout = layout;
    t.layout.begin = first, t.layout.end = last;
    if (ranks > 1) t.layout.flat_axes = flat_axes;
    t.value = at::zeros({last - first}, kFloat);
    list.push_back(t);
  }
  const at::Tensor whole = values_of(toy);
  for (Trainable& t : list) {
    const SliceMap map = slice_map(t.layout, mesh);
    for (const SliceBox& box : map.boxes) map.in_held(box, t.value).copy_(map.in_whole(box, whole));
  }
  return list;
}

// Blocks of dimension 0; of three dimensions the first one counts matrices.
std::vector<WholeTensor> matrices_of(const ParamPtr& param) {
  const std::vector<int64_t>& shape = param->layout.global_shape;
  std::vector<WholeTensor> list;
  if (shape.size() == 3) {
    for (int64_t i = 0; i < shape[0]; ++i)
      list.push_back({param, i, 1, shape[1], shape[2], static_cast<double>(shape[1] * shape[2])});
    return list;
  }
  int64_t first = 0;
  for (const int64_t rows : param->blocks.empty() ? std::vector<int64_t>{shape[0]} : param->blocks) {
    list.push_back({param, first, rows, rows, shape[1], static_cast<double>(rows * shape[1])});
    first += rows;
  }
  return list;
}

// An operation on whole matrices: every element depends on its neighbours and its place.
at::Tensor operation(const at::Tensor& matrix) { return matrix.cumsum(0).add(matrix.cumsum(1)); }

at::Tensor expected_of(const Toy& toy) {
  Layout layout = Layout::whole(toy.shape);
  const auto param = std::make_shared<Param>(toy.name, layout, InitRule::zeros());
  param->blocks = toy.blocks;
  const at::Tensor whole = values_of(toy), result = at::zeros_like(whole);
  int64_t first = 0;
  for (const WholeTensor& t : matrices_of(param)) {
    const int64_t n = t.rows * t.columns;
    result.narrow(0, first, n).copy_(operation(whole.narrow(0, first, n).view({t.rows, t.columns})).view({n}));
    first += n;
  }
  return result;
}

struct Case {
  const char* name;
  std::vector<Axis> axes;
  std::vector<std::string> flat_axes;
  std::vector<DimSplit> rows = {}, columns = {}, fused = {};  // of parameters cut in that way
};

std::vector<Toy> toys(const Case& c) {
  return {{"wide.a", {6, 10}, c.rows},  {"tall.b", {14, 4}, c.columns}, {"fused.c", {16, 6}, c.fused, {8, 4, 4}},
          {"experts.d", {4, 3, 5}, {}}, {"row.e", {1, 8}, {}},          {"column.f", {8, 1}, {}},
          {"small.g", {1, 1}, {}}};
}

const DimSplit kUncut;
const std::vector<DimSplit> kRows = {{{"tp"}, {}, 0}, kUncut}, kColumns = {kUncut, {{"tp"}, {}, 0}},
                            kFused = {{{"tp"}, {8, 4, 4}, 0}, kUncut}, kPadded = {{{"tp"}, {}, 8}, kUncut};

const Case kCases[] = {
    {"one_process", {{"dp", 1}}, {}},
    {"copies", {{"dp", 3}}, {}},
    {"flat_parts", {{"dp", 3}}, {"dp"}},
    {"flat_parts_of_five", {{"dp", 5}}, {"dp"}},
    {"cut_dimensions", {{"tp", 2}}, {}, kRows, kColumns, kFused},
    {"padded_rows", {{"tp", 2}}, {}, kPadded, kColumns, kFused},
    {"cut_dimensions_and_flat_parts", {{"tp", 2}, {"dp", 2}}, {"dp"}, kRows, kColumns, kFused},
    {"cut_dimensions_and_copies", {{"tp", 2}, {"dp", 2}}, {}, kRows, kColumns, kFused},
    {"flat_parts_in_groups_of_copies", {{"dp", 2}, {"replica", 2}}, {"dp"}},
    {"flat_parts_over_two_axes", {{"cp", 2}, {"dp", 2}}, {"cp", "dp"}},
    {"stages", {{"dp", 2}, {"pp", 2}}, {"dp"}},
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class WholeTensorsOver : public testing::TestWithParam<Case> {};

TEST_P(WholeTensorsOver, gives_each_rank_its_part_of_the_result_for_the_whole) {
  const Case& c = GetParam();
  for (const int64_t round : {int64_t{1}, int64_t{60}, int64_t{1} << 24}) {
    std::mutex mutex;
    std::map<std::string, int> computed;  // by stage and matrix
    expect_on_ranks(c.axes, [&](const Mesh& mesh) {
      Trainables all;
      for (const Toy& toy : toys(c))
        for (const Trainable& t : pieces_of(toy, mesh, c.flat_axes)) all.push_back(t);
      std::vector<at::Tensor> results;
      for (const Trainable& t : all) results.push_back(at::zeros_like(t.value));
      const WholeTensors whole(all, matrices_of, mesh, {.round = round, .side_by_side = round != 60});
      for (int again = 0; again < 2; ++again)
        whole.run(
            [&](const WholeTensors::Part& part, const at::Tensor& to) { to.copy_(part.in(all[part.trainable].value)); },
            [&](const WholeTensor& tensor, const at::Tensor& matrix) {
              EXPECT_EQ(matrix.sizes(), (std::vector<int64_t>{tensor.rows, tensor.columns}));
              const std::lock_guard lock(mutex);
              ++computed[concat(mesh.index("pp"), tensor.param->name, tensor.first)];
              return operation(matrix);
            },
            [&](const WholeTensors::Part& part, const at::Tensor& result) {
              part.in(results[part.trainable]).copy_(result);
            });
      size_t i = 0;
      for (const Toy& toy : toys(c)) {
        const at::Tensor expected = expected_of(toy);
        for (const Trainable& t : pieces_of(toy, mesh, c.flat_axes)) {
          const SliceMap map = slice_map(t.layout, mesh);
          for (const SliceBox& box : map.boxes)
            EXPECT_TRUE(at::equal(map.in_held(box, results[i]), map.in_whole(box, expected)))
                << toy.name << " on rank " << mesh.rank();
          ++i;
        }
      }
    });
    const size_t matrices = 3 + 4 + 1 + 1 + 1 + 2;
    int64_t stages = 1;
    for (const Axis& axis : c.axes)
      if (axis.name == "pp") stages = axis.size;
    EXPECT_EQ(computed.size(), matrices * static_cast<size_t>(stages));
    for (const auto& [name, times] : computed) EXPECT_EQ(times, 2) << name << " is computed once per call";
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, WholeTensorsOver, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

// Largest first, each for the rank with the least so far: no rank has more than the others by more than one matrix.
TEST(WholeTensors, shares_the_work_out) {
  expect_on_ranks({{"dp", 3}}, [&](const Mesh& mesh) {
    Trainables all;
    for (int64_t i = 0; i < 12; ++i) {
      const std::string name = concat("m", i);
      for (const Trainable& t : pieces_of({name.c_str(), {4, 5 + i}}, mesh, {})) all.push_back(t);
    }
    const WholeTensors whole(all, matrices_of, mesh, {});
    std::vector<double> work(3, 0);
    double largest = 0;
    for (size_t i = 0; i < whole.tensors().size(); ++i) {
      work[static_cast<size_t>(whole.owner(i))] += whole.tensors()[i].work;
      largest = std::max(largest, whole.tensors()[i].work);
    }
    const auto [least, most] = std::minmax_element(work.begin(), work.end());
    EXPECT_LE(*most - *least, largest / 2);
  });
}

TEST(WholeTensors, names_a_matrix_of_which_a_part_is_missing) {
  const std::vector<std::string> errors = on_ranks({{"dp", 2}}, [&](const Mesh& mesh) {
    Trainables all = pieces_of({"w", {6, 5}}, mesh, {"dp"});
    if (mesh.rank() == 1)
      all.back().layout.begin += 2, all.back().value = all.back().value.narrow(0, 2, all.back().value.numel() - 2);
    const WholeTensors whole(all, matrices_of, mesh, {});
  });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("w: the ranks hold 28 elements"), std::string::npos) << error;
    EXPECT_NE(error.find("which have 30"), std::string::npos) << error;
  }
}

TEST(WholeTensors, names_ranks_that_hold_other_parameters) {
  const std::vector<std::string> errors = on_ranks({{"dp", 2}}, [&](const Mesh& mesh) {
    Trainables all = pieces_of({"w", {2, 2}}, mesh, {});
    if (mesh.rank() == 1) all.clear();
    const WholeTensors whole(all, matrices_of, mesh, {});
  });
  EXPECT_NE((errors[0] + errors[1]).find("has 0 matrices of this pipeline stage"), std::string::npos) << errors[0];
}

}  // namespace
}  // namespace drivetrain
