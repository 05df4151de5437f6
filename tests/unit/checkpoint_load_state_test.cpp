// State in and out of a checkpoint in memory: values and counters to the bit, other dtypes, padding; what is missing,
// of another shape, or asked for by nobody.
#include "checkpoint/load_state.h"

#include <gtest/gtest.h>

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>

#include "support/memory_checkpoint.h"

namespace drivetrain::test {
namespace {

struct LoadTest : testing::Test {
  static at::Tensor values(int64_t n, at::ScalarType type = at::kFloat) {
    return at::linspace(-3, 4.7, n, at::TensorOptions(at::kFloat)).to(type);
  }
  // `visit` on one rank.
  template <class Visit>
  MemoryCheckpoint saved(const Visit& visit) const {
    HeldState held(mesh);
    visit(held);
    return MemoryCheckpoint({held});
  }
  // What throw_if_incomplete says after `visit`.
  template <class Visit>
  std::string loaded(const Checkpoint& checkpoint, const Visit& visit) {
    LoadState load(checkpoint, *checkpoint.facts().find("counters"), mesh);
    visit(load);
    unused = load.unused();
    try {
      load.throw_if_incomplete();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::checkpoint);
      return e.what();
    }
    return "";
  }
  const Mesh mesh{{}, 0, 1, nullptr};
  std::set<std::string> unused;
};

TEST_F(LoadTest, tensors_and_counters_come_back_to_the_bit) {
  at::Tensor weight = values(12).view({3, 4}), scalar = at::full({}, 0.1), steps = at::full({2}, 7, at::kLong);
  int64_t count = (int64_t{1} << 60) + 1;
  double pace = 0.1 + 0.2, best = std::numeric_limits<double>::infinity(), none = std::nan("");
  const auto visit = [](StateVisitor& v, at::Tensor& a, at::Tensor& b, at::Tensor& c, int64_t& i, double& x, double& y,
                        double& z) {
    v.tensor("weight", a, Layout::whole({3, 4}));
    v.tensor("scalar", b, Layout::whole({}));
    v.tensor("steps", c, Layout::whole({2}));
    v.integer("count", i);
    v.number("pace", x), v.number("best", y), v.number("none", z);
  };
  const auto checkpoint = saved([&](StateVisitor& v) { visit(v, weight, scalar, steps, count, pace, best, none); });
  at::Tensor a = at::zeros({3, 4}), b = at::zeros({}), c = at::zeros({2}, at::kLong);
  int64_t i = 0;
  double x = 0, y = 0, z = 0;
  EXPECT_EQ(loaded(checkpoint, [&](StateVisitor& v) { visit(v, a, b, c, i, x, y, z); }), "");
  EXPECT_TRUE(at::equal(a, weight) && at::equal(b, scalar) && at::equal(c, steps));
  EXPECT_EQ(i, count);
  EXPECT_EQ(x, pace);
  EXPECT_EQ(y, best);
  EXPECT_TRUE(std::isnan(z));
  EXPECT_TRUE(unused.empty());
}

// What is written as JSON and read again, as a store does.
TEST_F(LoadTest, counters_survive_json) {
  HeldState held(mesh);
  int64_t count = -(int64_t{1} << 62);
  double numbers[] = {1e-300, -0.1, std::numeric_limits<double>::denorm_min(),
                      -std::numeric_limits<double>::infinity()};
  held.integer("count", count);
  for (size_t i = 0; i < 4; ++i) held.number(concat("n", i), numbers[i]);
  const Value counters = parse_json(held.counters().to_json(), "test");
  const MemoryCheckpoint nothing;
  LoadState load(nothing, counters, mesh);
  int64_t found = 0;
  load.integer("count", found);
  EXPECT_EQ(found, count);
  for (size_t i = 0; i < 4; ++i) {
    double number = 0;
    load.number(concat("n", i), number);
    EXPECT_EQ(number, numbers[i]);
  }
  load.throw_if_incomplete();
}

TEST_F(LoadTest, other_dtypes_are_converted) {
  at::Tensor wide = values(100), narrow = values(100, at::kBFloat16);
  const auto of_wide = saved([&](StateVisitor& v) { v.tensor("x", wide, Layout::whole({100})); });
  const auto of_narrow = saved([&](StateVisitor& v) { v.tensor("x", narrow, Layout::whole({100})); });
  at::Tensor into_narrow = at::zeros({100}, at::kBFloat16), into_wide = at::zeros({100});
  EXPECT_EQ(loaded(of_wide, [&](StateVisitor& v) { v.tensor("x", into_narrow, Layout::whole({100})); }), "");
  EXPECT_EQ(loaded(of_narrow, [&](StateVisitor& v) { v.tensor("x", into_wide, Layout::whole({100})); }), "");
  EXPECT_TRUE(at::equal(into_narrow, wide.to(at::kBFloat16)));
  EXPECT_TRUE(at::equal(into_wide, narrow.to(at::kFloat)));
}

// Rows of padding are zero, whatever was there; the checkpoint has none.
TEST_F(LoadTest, padding_becomes_zero) {
  const Mesh two({{"tp", 2}}, 1, 2, nullptr);
  Layout layout = Layout::whole({5, 2});
  layout.dims = {{{"tp"}, {}, 6}, {}};
  at::Tensor whole = values(10).view({5, 2});
  const auto checkpoint = saved([&](StateVisitor& v) { v.tensor("x", whole, Layout::whole({5, 2})); });
  at::Tensor mine = at::full({3, 2}, 9.0f);
  LoadState load(checkpoint, *checkpoint.facts().find("counters"), two);
  load.tensor("x", mine, layout);
  load.throw_if_incomplete();
  EXPECT_TRUE(at::equal(mine.narrow(0, 0, 2), whole.narrow(0, 3, 2)));
  EXPECT_TRUE(at::equal(mine.narrow(0, 2, 1), at::zeros({1, 2})));
}

TEST_F(LoadTest, everything_that_is_missing_or_of_another_shape_is_listed_at_once) {
  at::Tensor x = values(6), y = values(4);
  int64_t count = 3;
  const auto checkpoint = saved([&](StateVisitor& v) {
    v.tensor("x", x, Layout::whole({6}));
    v.integer("count", count);
  });
  at::Tensor other = at::full({2, 3}, 9.0f), fresh = at::full({4}, 9.0f);
  int64_t steps = 5;
  double scale = 7;
  const std::string text = loaded(checkpoint, [&](StateVisitor& v) {
    v.tensor("x", other, Layout::whole({2, 3}));
    v.tensor("y", fresh, Layout::whole({4}));
    v.integer("steps", steps);
    v.number("scale", scale);
    v.integer("count", count);
  });
  for (const char* part : {"4 parts", "x [2, 3]: the checkpoint has [6]", "y [4]", "the counter steps",
                           "the counter scale", "resolved.json"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  EXPECT_TRUE(at::equal(other, at::full({2, 3}, 9.0f)) && at::equal(fresh, at::full({4}, 9.0f))) << "left as they were";
  EXPECT_EQ(steps, 5);
  EXPECT_EQ(scale, 7);
}

TEST_F(LoadTest, a_long_list_is_cut_short_and_counted) {
  const auto checkpoint = saved([](StateVisitor&) {});
  const std::string text = loaded(checkpoint, [](StateVisitor& v) {
    at::Tensor t = at::zeros({1});
    for (int i = 0; i < 25; ++i) v.tensor(concat("t", i), t, Layout::whole({1}));
  });
  EXPECT_NE(text.find("25 parts"), std::string::npos) << text;
  EXPECT_NE(text.find("and 15 more"), std::string::npos) << text;
  EXPECT_EQ(text.find("t11"), std::string::npos) << text;
}

TEST_F(LoadTest, what_nobody_asked_for_is_known_by_name) {
  at::Tensor x = values(2), y = values(2);
  int64_t count = 3;
  double scale = 2;
  const auto checkpoint = saved([&](StateVisitor& v) {
    v.tensor("b/moment", y, Layout::whole({2})), v.tensor("a", x, Layout::whole({2}));
    v.number("scaler/scale", scale), v.integer("count", count);
  });
  const std::string text = loaded(checkpoint, [&](StateVisitor& v) { v.tensor("a", x, Layout::whole({2})); });
  EXPECT_EQ(text, "") << "more than enough is enough";
  EXPECT_EQ(unused, (std::set<std::string>{"b/moment", "count", "scaler/scale"}));
}

TEST_F(LoadTest, a_counter_of_another_type_is_named) {
  const Value counters = parse_json(R"({"a": "many", "b": [1]})", "test");
  const MemoryCheckpoint nothing;
  LoadState load(nothing, counters, mesh);
  for (const char* name : {"a", "b"}) {
    double value = 0;
    try {
      load.number(name, value);
      ADD_FAILURE() << name;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::checkpoint);
      EXPECT_NE(std::string(e.what()).find(concat("the counter ", name)), std::string::npos) << e.what();
    }
  }
}

// --- what is held

TEST_F(LoadTest, a_tensor_that_its_layout_does_not_fit_is_the_plugins_error) {
  HeldState held(mesh);
  at::Tensor x = values(5);
  try {
    held.tensor("x", x, Layout::whole({6}));
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::plugin);
    for (const char* part : {"x", "5 elements", "6"})
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

TEST_F(LoadTest, what_a_rank_holds_are_views_of_the_owners_memory) {
  HeldState held(mesh);
  at::Tensor x = values(6), empty = at::zeros({0});
  held.tensor("x", x, Layout::whole({6}));
  held.tensor("empty", empty, Layout::whole({0}));
  ASSERT_EQ(held.parts().size(), 1u) << "nothing is held of a tensor without elements";
  x.fill_(2);
  EXPECT_TRUE(at::equal(held.parts()[0].view.view(-1), x));
}

}  // namespace
}  // namespace drivetrain::test
