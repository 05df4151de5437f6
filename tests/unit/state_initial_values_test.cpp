// Initial values are functions of names and global indices, whatever part of a parameter a rank holds.
#include "state/initial_values.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <drivetrain/error.h>
#include <drivetrain/random.h>

#include "unit/state_files.h"

namespace drivetrain {
namespace {

using test::error_of;

Mesh tp_mesh(int64_t rank, int64_t tp) { return Mesh({{"tp", tp}}, rank, tp, nullptr); }

// What a rank gets for elements [begin, end) of its slice, from memory full of -7.
at::Tensor filled(Layout layout, InitRule init, const Mesh& mesh, int64_t begin, int64_t end,
                  at::ScalarType dtype = at::kFloat) {
  layout.begin = begin, layout.end = end;
  Trainable t;
  t.param = std::make_shared<Param>("w", layout, init);
  t.layout = layout;
  t.value = at::full({end - begin}, -7.0, at::TensorOptions(dtype));
  fill_initial_values({{t}}, 11, mesh);
  return t.value;
}

at::Tensor whole(const Layout& layout, double std) {
  at::Tensor values = at::empty({layout.global_numel()});
  fill_normal(values, 11, "w", 0, std);
  return values.view(layout.global_shape);
}

// A rank's slice as indexing the whole gives it, with its padding.
at::Tensor indexed(const Layout& layout, const Mesh& mesh, const at::Tensor& all) {
  at::Tensor slice = at::zeros(layout.local_shape(mesh));
  const bool matrix = layout.global_shape.size() == 2;
  int64_t row = 0;
  for (const Layout::Range rows : layout.ranges(0, mesh)) {
    int64_t column = 0;
    const std::vector<Layout::Range> every = {{0, 1}};
    for (const Layout::Range columns : matrix ? layout.ranges(1, mesh) : every) {
      const at::Tensor to = slice.narrow(0, row, rows.count), from = all.narrow(0, rows.first, rows.count);
      if (matrix)
        to.narrow(1, column, columns.count).copy_(from.narrow(1, columns.first, columns.count));
      else
        to.copy_(from);
      column += columns.count;
    }
    row += rows.count;
  }
  return slice.view({-1});
}

Layout cut(std::vector<int64_t> shape, std::vector<DimSplit> dims) {
  Layout layout = Layout::whole(std::move(shape));
  layout.dims = std::move(dims);
  return layout;
}

TEST(InitialValues, every_cut_and_every_flat_range_of_it_draws_what_the_whole_draws) {
  const Layout layouts[] = {
      cut({13, 7}, {}),
      cut({12, 7}, {{{"tp"}, {}}, {}}),
      cut({12, 7}, {{{"tp"}, {6, 3, 3}}, {}}),
      cut({13, 7}, {{{"tp"}, {}, 18}, {}}),
      cut({4, 5000}, {{{"tp"}, {}, 21}, {}}),  // whole ranks of padding
      cut({5, 12}, {{}, {{"tp"}, {}}}),
      cut({3, 9000}, {{}, {{"tp"}, {}}}),
      cut({6, 12}, {{}, {{"tp"}, {6, 6}}}),
      cut({3000}, {{{"tp"}, {}}}),
      cut({4, 9}, {{{"tp"}, {}, 9}, {{"tp"}, {}}}),
  };
  for (const Layout& layout : layouts) {
    for (int64_t rank = 0; rank < 3; ++rank) {
      const Mesh mesh = tp_mesh(rank, 3);
      const at::Tensor slice = indexed(layout, mesh, whole(layout, 0.5));
      const int64_t n = slice.numel();
      for (const auto& [begin, end] :
           {std::pair{int64_t{0}, n}, {n, n}, {1, n - 1}, {n / 3, n / 2}, {n / 2, n / 2 + 1}}) {
        const at::Tensor drawn = filled(layout, InitRule::normal(0.5), mesh, begin, end);
        EXPECT_TRUE(at::equal(drawn, slice.narrow(0, begin, end - begin)))
            << at::IntArrayRef(layout.global_shape) << " rank " << rank << ", elements " << begin << " to " << end;
      }
    }
  }
}

TEST(InitialValues, uniform_numbers_fill_their_bounds_evenly_and_are_the_same_in_every_cut) {
  const Layout all = cut({40, 500}, {});
  const at::Tensor whole = filled(all, InitRule::uniform(0.25), tp_mesh(0, 2), 0, 20000);
  EXPECT_LE(whole.abs().max().item<double>(), 0.25);
  for (int quarter = 0; quarter < 4; ++quarter) {  // of 20000 numbers 5000 +- 6 standard deviations of 61
    const double from = -0.25 + 0.125 * quarter;
    EXPECT_NEAR(whole.ge(from).logical_and(whole.lt(from + 0.125)).sum().item<double>(), 5000, 366) << quarter;
  }
  const Layout columns = cut({40, 500}, {{}, {{"tp"}, {}}});
  const at::Tensor part = filled(columns, InitRule::uniform(0.25), tp_mesh(1, 2), 7, 9000);
  EXPECT_TRUE(at::equal(part, indexed(columns, tp_mesh(1, 2), whole.view({40, 500})).narrow(0, 7, 8993)));
}

TEST(InitialValues, padding_is_zero_whatever_the_rule_says) {
  const Layout layout = cut({5, 2}, {{{"tp"}, {}, 8}, {}});
  const at::Tensor ones = filled(layout, InitRule::ones(), tp_mesh(1, 2), 1, 8);
  EXPECT_TRUE(at::equal(ones.narrow(0, 0, 1), at::full({1}, 1.0)));
  EXPECT_TRUE(at::equal(ones.narrow(0, 1, 6), at::zeros({6})));
  EXPECT_TRUE(at::equal(filled(layout, InitRule::zeros(), tp_mesh(0, 2), 0, 8), at::zeros({8})));
}

TEST(InitialValues, other_floating_types_get_the_rounded_numbers) {
  const Layout layout = cut({5, 12}, {{}, {{"tp"}, {}}});
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf, at::kDouble}) {
    const at::Tensor drawn = filled(layout, InitRule::normal(1), tp_mesh(2, 3), 3, 17, dtype);
    EXPECT_TRUE(at::equal(drawn, indexed(layout, tp_mesh(2, 3), whole(layout, 1)).narrow(0, 3, 14).to(dtype)));
    const at::Tensor flat = filled(cut({60}, {}), InitRule::normal(1), tp_mesh(0, 3), 3, 17, dtype);
    EXPECT_TRUE(at::equal(flat, whole(cut({60}, {}), 1).narrow(0, 3, 14).to(dtype)));
  }
}

TEST(InitialValues, a_part_that_does_not_fit_its_layout_is_our_own_bug) {
  Trainable t;
  t.layout = cut({4, 2}, {{{"tp"}, {}}, {}});
  t.param = std::make_shared<Param>("w", t.layout, InitRule::ones());
  t.value = at::zeros({5});
  EXPECT_NE(error_of([&] {
              fill_initial_values({{t}}, 1, tp_mesh(0, 2));
            }).text.find("w: a part of 5 elements, its layout names 4"),
            std::string::npos);
  t.layout.end = 5;
  EXPECT_NE(error_of([&] {
              fill_initial_values({{t}}, 1, tp_mesh(0, 2));
            }).text.find("[0, 5) does not fit the local slice of 4"),
            std::string::npos);
  t.layout = cut({2, 2, 2}, {{}, {}, {{"tp"}, {}}});
  EXPECT_NE(error_of([&] { fill_initial_values({{t}}, 1, tp_mesh(0, 2)); }).text.find("cut in dimension 2"),
            std::string::npos);
}

}  // namespace
}  // namespace drivetrain
