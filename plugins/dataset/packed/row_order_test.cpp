#include "row_order.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include "test_documents.h"

namespace drivetrain::test {
namespace {

using namespace packed;

constexpr int64_t kRow = 64, kDocuments = 700, kWindow = 100;

Arrangement arrangement(Method method, uint64_t seed = 3) { return {method, kRow, kWindow, 8, seed}; }

using Row = std::vector<std::pair<int64_t, int64_t>>;  // document and first position of every piece

Row row_of(RowOrder& order, int64_t r) {
  std::vector<Piece> pieces;
  order.row(r, pieces);
  Row row;
  for (const Piece& piece : pieces) row.emplace_back(piece.document, piece.first);
  return row;
}

std::vector<Row> rows_of(RowOrder& order, int64_t first, int64_t count) {
  std::vector<Row> rows;
  for (int64_t r = first; r < first + count; ++r) rows.push_back(row_of(order, r));
  return rows;
}

class RowOrderOf : public testing::TestWithParam<Method> {
 protected:
  const NumberedDocuments documents_{log_normal_lengths(kDocuments, 20, 1)};
};

TEST_P(RowOrderOf, every_epoch_has_every_position_once) {
  RowOrder order(documents_, arrangement(GetParam()));
  order.count_up_to(kDocuments);
  ASSERT_TRUE(order.counted_all());
  const int64_t rows = order.counted().rows;
  for (const int64_t epoch : {0, 1, 5}) {
    std::map<int64_t, int64_t> positions;
    std::vector<Piece> pieces;
    for (int64_t r = 0; r < rows; ++r) {
      EXPECT_EQ(order.epoch(epoch * rows + r), epoch);
      order.row(epoch * rows + r, pieces);
      for (const Piece& piece : pieces) positions[piece.document] += piece.count;
    }
    EXPECT_EQ(positions.size(), static_cast<size_t>(kDocuments));
    for (const auto& [document, count] : positions) EXPECT_EQ(count, documents_.length(document));
  }
}

TEST_P(RowOrderOf, any_row_is_found_as_in_a_walk_over_all) {
  RowOrder walk(documents_, arrangement(GetParam()));
  walk.count_up_to(kDocuments);
  const int64_t total = 3 * walk.counted().rows;
  const std::vector<Row> wanted = rows_of(walk, 0, total);
  RowOrder jumps(documents_, arrangement(GetParam()));
  for (int64_t i = 0; i < total; ++i) {
    const int64_t r = i * 7919 % total;
    EXPECT_EQ(row_of(jumps, r), wanted[static_cast<size_t>(r)]) << "row " << r;
  }
  // Each as the first that is asked for.
  for (int64_t r = 0; r < total; r += 53) {
    RowOrder fresh(documents_, arrangement(GetParam()));
    EXPECT_EQ(row_of(fresh, r), wanted[static_cast<size_t>(r)]) << "row " << r;
  }
}

TEST_P(RowOrderOf, windows_are_counted_as_they_are_needed) {
  RowOrder order(documents_, arrangement(GetParam()));
  row_of(order, 0);
  EXPECT_FALSE(order.counted_all());
  EXPECT_LT(order.counted().documents, kDocuments / 2);
  order.count_up_to(2 * kWindow);
  EXPECT_GE(order.counted().documents, 2 * kWindow);
  EXPECT_FALSE(order.counted_all());
}

TEST_P(RowOrderOf, epochs_and_seeds_differ_in_their_order) {
  RowOrder order(documents_, arrangement(GetParam())), other(documents_, arrangement(GetParam(), 4));
  order.count_up_to(kDocuments);
  const int64_t rows = order.counted().rows;
  const auto first = rows_of(order, 0, rows), second = rows_of(order, rows, rows);
  EXPECT_NE(first, second);
  EXPECT_NE(first, rows_of(order, 2 * rows, rows));
  EXPECT_EQ(std::multiset<Row>(first.begin(), first.end()), std::multiset<Row>(second.begin(), second.end()));
  EXPECT_NE(first, rows_of(other, 0, rows));
}

INSTANTIATE_TEST_SUITE_P(Method, RowOrderOf,
                         testing::Values(Method::best_fit, Method::fixed, Method::length_groups, Method::none));

// A batch is of one group, except where windows meet.
TEST(LengthGroups, rows_of_a_batch_have_similar_lengths) {
  const NumberedDocuments documents(log_normal_lengths(4000, 20, 0.8));
  RowOrder order(documents, {Method::length_groups, 4096, 1000, 8, 3});
  std::vector<Piece> pieces;
  std::vector<int64_t> spread, longest;
  for (int64_t batch = 0; batch < 500; ++batch) {
    int64_t least = 4096, most = 0;
    for (int64_t r = 8 * batch; r < 8 * batch + 8; ++r) {
      order.row(r, pieces);
      least = std::min(least, pieces[0].count), most = std::max(most, pieces[0].count);
    }
    spread.push_back(most - least), longest.push_back(most);
  }
  std::sort(spread.begin(), spread.end());
  EXPECT_LE(spread[400], 2) << "in four of five batches";
  EXPECT_FALSE(std::is_sorted(longest.begin(), longest.end(), std::greater<>())) << "batches come in random order";
}

// Documents with a length and nothing else, as many as it takes.
class Endless : public Documents {
 public:
  int64_t count() const override { return 1'000'000'000; }
  int64_t length(int64_t d) const override { return ++asked, 1 + d % 40; }
  void read(int64_t, int64_t, int64_t, int64_t*, int64_t*) const override {}
  mutable int64_t asked = 0;
};

TEST(RowOrder, the_first_row_of_a_large_corpus_takes_one_window) {
  const Endless documents;
  RowOrder order(documents, {Method::best_fit, kRow, 65536, 8, 3});
  std::vector<Piece> pieces;
  order.row(0, pieces);
  EXPECT_FALSE(pieces.empty());
  EXPECT_LE(documents.asked, 65536);
}

TEST(RowOrder, documents_without_a_position_are_in_no_row) {
  const NumberedDocuments documents({0, 5, 0, 6}), nothing({0, 0});
  RowOrder order(documents, {Method::none, 8, 1, 1, 3});
  order.count_up_to(4);
  EXPECT_EQ(order.counted().rows, 2);
  EXPECT_EQ(order.counted().empty, 2);
  EXPECT_NE(row_of(order, 0), row_of(order, 1));
  RowOrder none(nothing, {Method::best_fit, 8, 1, 1, 3});
  EXPECT_THROW(row_of(none, 0), Error);
}

}  // namespace
}  // namespace drivetrain::test
