// Tensors of a file that end before a parameter's last rows (WeightPart::absent): what these rows start from on ranks
// that hold any part of them, and which tensors are refused.
#include "state/absent_rows.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <map>

#include "formats/open_folder.h"
#include "state/foreign_tensors.h"
#include "state/initial_values.h"
#include "state/weights.h"
#include "support/tensor_checkpoint.h"
#include "unit/state_files.h"

namespace drivetrain {
namespace {

using namespace test;

constexpr uint64_t kSeedOfRows = 11;
constexpr int64_t kRowsThere = 5, kAllRows = 9, kColumnsOfRows = 3;

class AbsentRowsOfFile : public ::testing::Test {
 protected:
  AbsentRowsOfFile() {
    rules_.rules = {{"table", {{"words", kAllRows}}, false}};
    rules_.tied = {{"output", "table"}};
    set_start(AbsentRows::mean);
    foreign_ = {{"model/words", at::randn({kRowsThere, kColumnsOfRows})}};
  }
  void set_start(AbsentRows start) {
    for (WeightPart& part : rules_.rules[0].parts) part.absent = start;
  }
  Trainable target(const Layout& layout, const Mesh& mesh) const {
    Trainable t;
    t.param = std::make_shared<Param>("table", layout, InitRule::normal(0.5));
    t.layout = layout;
    t.value = at::full({(layout.end < 0 ? layout.local_numel(mesh) : layout.end) - layout.begin}, -1.0f);
    return t;
  }
  at::Tensor load(const Layout& layout, const Mesh& mesh) const {
    const Trainable t = target(layout, mesh);
    load_weights(*weights_of(std::make_shared<TensorCheckpoint>(foreign_), "folder"), rules_, {{t}}, mesh, kSeedOfRows);
    return t.value;
  }
  at::Tensor load_whole() const {
    const Layout layout = Layout::whole({kAllRows, kColumnsOfRows});
    return load(layout, Mesh({}, 0, 1, nullptr)).view({kAllRows, kColumnsOfRows});
  }
  std::string refused() const {
    return error_of([&] { load_whole(); }).text;
  }

  // Rows behind those of `there`, which are the first of the parameter.
  at::Tensor mean_behind(const at::Tensor& there) const {
    const at::Tensor mean = there.to(at::kDouble).sum(0).div(double(there.size(0))).to(at::kFloat);
    return at::cat({there, mean.expand({kAllRows - there.size(0), kColumnsOfRows})});
  }
  at::Tensor initial_behind(const at::Tensor& there) const {
    const Mesh mesh({}, 0, 1, nullptr);
    const Trainable t = target(Layout::whole({kAllRows, kColumnsOfRows}), mesh);
    fill_initial_values({{t}}, kSeedOfRows, mesh);
    const int64_t count = there.size(0);
    return at::cat({there, t.value.view({kAllRows, kColumnsOfRows}).narrow(0, count, kAllRows - count)});
  }

  // What every rank of four holds of `wanted`: rows of a padded dimension, or columns; all elements or some of them.
  void expect_slices(const at::Tensor& wanted) const {
    const at::Tensor padded = at::cat({wanted, at::zeros({3, kColumnsOfRows})});
    for (int64_t rank = 0; rank < 4; ++rank) {
      const Mesh mesh({{"tp", 4}}, rank, 4, nullptr);
      Layout rows = Layout::whole({kAllRows, kColumnsOfRows});
      rows.dims = {{{"tp"}, {}, 12}, {}};
      const at::Tensor mine = padded.narrow(0, 3 * rank, 3).reshape({-1});
      for (const auto& [begin, end] : {std::pair{0, 9}, {1, 9}, {2, 5}, {4, 5}, {0, 0}}) {
        rows.begin = begin, rows.end = end;
        EXPECT_TRUE(at::equal(load(rows, mesh), mine.narrow(0, begin, end - begin))) << rank << " " << begin;
      }
      if (rank == 3) continue;
      Layout columns = Layout::whole({kAllRows, kColumnsOfRows});
      columns.dims = {{}, {{"tp"}, {}}};
      columns.begin = 1, columns.end = 8;
      const Mesh three({{"tp", 3}}, rank, 3, nullptr);
      EXPECT_TRUE(at::equal(load(columns, three), wanted.select(1, rank).narrow(0, 1, 7))) << rank;
    }
  }

  WeightRules rules_;
  NamedTensors foreign_;
};

TEST_F(AbsentRowsOfFile, start_as_the_mean_of_those_that_were_read_on_every_rank) {
  const at::Tensor wanted = mean_behind(foreign_["model/words"]);
  EXPECT_TRUE(at::equal(load_whole(), wanted));
  expect_slices(wanted);
}

TEST_F(AbsentRowsOfFile, start_by_the_rule_of_the_parameter_on_every_rank) {
  set_start(AbsentRows::init);
  const at::Tensor wanted = initial_behind(foreign_["model/words"]);
  EXPECT_TRUE(at::equal(load_whole(), wanted));
  expect_slices(wanted);
}

TEST_F(AbsentRowsOfFile, of_a_transposed_tensor_are_its_last_columns) {
  const at::Tensor there = foreign_["model/words"];
  foreign_["model/words"] = there.t().contiguous();
  rules_.rules[0].transposed = true;
  expect_slices(mean_behind(there));
  set_start(AbsentRows::init);
  expect_slices(initial_behind(there));
}

// Large sums in float32 would lose the small ones.
TEST_F(AbsentRowsOfFile, a_mean_is_summed_in_float64) {
  const float values[kRowsThere] = {16777216, 1, 1, 1, -16777216};
  for (int64_t row = 0; row < kRowsThere; ++row) foreign_["model/words"].select(0, row).fill_(values[row]);
  EXPECT_TRUE(at::equal(load_whole().narrow(0, kRowsThere, 4), at::full({4, kColumnsOfRows}, 3.0f / 5)));
}

TEST_F(AbsentRowsOfFile, a_mean_is_of_all_rows_that_the_parameter_has_of_the_tensor) {
  const at::Tensor there = foreign_["model/words"];
  rules_.rules[0].parts = {{"words", 2, true, 2}, {"words", 2, true, 0}, {"words", 5, true, 4}};
  set_start(AbsentRows::mean);
  const at::Tensor found = load_whole();
  EXPECT_TRUE(at::equal(found.narrow(0, 0, 4), at::cat({there.narrow(0, 2, 2), there.narrow(0, 0, 2)})));
  EXPECT_TRUE(at::equal(found.narrow(0, 4, 5), mean_behind(there).narrow(0, 4, 5)));
}

TEST_F(AbsentRowsOfFile, a_tensor_of_all_rows_is_read_as_it_is) {
  foreign_["model/words"] = at::randn({kAllRows, kColumnsOfRows});
  EXPECT_TRUE(at::equal(load_whole(), foreign_["model/words"]));
  const auto file = weights_of(std::make_shared<TensorCheckpoint>(foreign_), "folder");
  EXPECT_TRUE(added_rows(*file, rules_).empty());
}

TEST_F(AbsentRowsOfFile, are_told) {
  const auto file = weights_of(std::make_shared<TensorCheckpoint>(foreign_), "folder");
  const std::vector<AddedRows> added = added_rows(*file, rules_);
  ASSERT_EQ(added.size(), 1u);
  EXPECT_EQ(added[0].param, "table");
  EXPECT_EQ(added[0].read, kRowsThere);
  EXPECT_EQ(added[0].added, kAllRows - kRowsThere);
  EXPECT_EQ(added[0].start, AbsentRows::mean);
}

TEST_F(AbsentRowsOfFile, a_tied_tensor_has_to_be_the_same_without_them) {
  foreign_["model/output"] = foreign_["model/words"].clone();
  EXPECT_TRUE(at::equal(load_whole(), mean_behind(foreign_["model/words"])));
  foreign_["model/output"][4][0] += 1;
  EXPECT_HAS(refused(), "\"output\" differs from \"words\"");
  foreign_["model/output"] = foreign_["model/words"].narrow(0, 0, 4).clone();
  EXPECT_HAS(refused(), "\"output\" differs from \"words\"");
}

TEST_F(AbsentRowsOfFile, where_the_rules_do_not_say_so_are_an_error) {
  set_start(AbsentRows::refused);
  EXPECT_HAS(refused(), "tensor \"words\" has shape [5, 3]; table of the model needs [9, 3] there");
  set_start(AbsentRows::mean);
  foreign_["model/words"] = at::randn({kAllRows + 1, kColumnsOfRows});
  EXPECT_HAS(refused(),
             "tensor \"words\" has shape [10, 3]; table of the model needs [9, 3] or less, of at least 1 rows,");
  foreign_["model/words"] = at::randn({kRowsThere, kColumnsOfRows + 1});
  EXPECT_HAS(refused(), "has shape [5, 4]");
  foreign_["model/words"] = at::zeros({0, kColumnsOfRows});
  EXPECT_HAS(refused(), "has shape [0, 3]");
}

TEST_F(AbsentRowsOfFile, only_the_part_that_ends_last_may_lack_rows) {
  rules_.rules[0].parts = {{"words", 6, true, 0}, {"words", 3, true, 6}};
  set_start(AbsentRows::mean);
  EXPECT_HAS(refused(), "or less, of at least 7 rows, there");
  foreign_["model/words"] = at::randn({7, kColumnsOfRows});
  EXPECT_TRUE(at::equal(load_whole(), mean_behind(foreign_["model/words"])));
}

TEST_F(AbsentRowsOfFile, one_rule_holds_for_all_parts_of_a_tensor) {
  rules_.rules[0].parts = {{"words", 4, true, 0}, {"words", 5, true, 4}};
  rules_.rules[0].parts[1].absent = AbsentRows::init;
  const Caught caught = error_of([&] { foreign_tensors(rules_); });
  EXPECT_EQ(caught.code, ErrorCode::internal);
  EXPECT_HAS(caught.text, "what absent rows start from");
}

}  // namespace
}  // namespace drivetrain
