#include "window.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include <drivetrain/toolkit/permutation.h>
#include "test_documents.h"

namespace drivetrain::test {
namespace {

using namespace packed;

constexpr int64_t kLength = 64;
const Method kAllMethods[] = {Method::best_fit, Method::fixed, Method::length_groups, Method::none};

std::vector<int64_t> mixed_lengths() {
  std::vector<int64_t> lengths = log_normal_lengths(500, 20, 1);
  for (const int64_t odd : {0, 1, 63, 64, 65, 127, 128, 129, 1000}) lengths.push_back(odd);
  return lengths;
}

Window window_of(Method method, const std::vector<int64_t>& lengths, int64_t S = kLength) {
  std::vector<int64_t> documents(lengths.size());
  std::iota(documents.begin(), documents.end(), 7);  // any numbers
  return {method, S, documents, lengths};
}

std::vector<std::vector<Piece>> rows_of(const Window& window) {
  std::vector<std::vector<Piece>> rows(static_cast<size_t>(window.rows()));
  for (size_t r = 0; r < rows.size(); ++r) window.row(static_cast<int64_t>(r), rows[r]);
  return rows;
}

int64_t used(const std::vector<Piece>& row) {
  return std::accumulate(row.begin(), row.end(), int64_t{0}, [](int64_t n, const Piece& p) { return n + p.count; });
}

TEST(Permutation, has_every_number_once) {
  for (const int64_t n : {1, 2, 3, 4, 5, 63, 64, 65, 1000}) {
    for (uint64_t key = 0; key < 20; ++key) {
      const Permutation order(n, key * 0x9e3779b97f4a7c15u);
      std::vector<int> seen(static_cast<size_t>(n), 0);
      for (int64_t i = 0; i < n; ++i) ++seen.at(static_cast<size_t>(order(i)));
      EXPECT_EQ(seen, std::vector<int>(static_cast<size_t>(n), 1)) << n;
    }
  }
}

// Each number stands at each place about equally often: within six standard deviations of 4000 draws.
TEST(Permutation, depends_on_the_key) {
  int64_t found[7][7] = {};
  for (uint64_t key = 1; key <= 28000; ++key) {
    const Permutation order(7, key * 0x9e3779b97f4a7c15u);
    for (int64_t i = 0; i < 7; ++i) ++found[i][order(i)];
  }
  for (const auto& place : found)
    for (const int64_t n : place) EXPECT_NEAR(static_cast<double>(n), 4000, 6 * std::sqrt(4000.0));
}

TEST(Window, has_every_position_of_every_document_once) {
  for (const Method method : kAllMethods) {
    const auto lengths = mixed_lengths();
    const Window window = window_of(method, lengths);
    std::map<int64_t, std::vector<int>> seen;
    for (const auto& row : rows_of(window)) {
      EXPECT_GT(used(row), 0);
      EXPECT_LE(used(row), kLength);
      for (const Piece& piece : row) {
        auto& positions = seen[piece.document];
        positions.resize(static_cast<size_t>(lengths.at(static_cast<size_t>(piece.document - 7))), 0);
        for (int64_t s = piece.first; s < piece.first + piece.count; ++s) ++positions.at(static_cast<size_t>(s));
      }
    }
    EXPECT_EQ(seen.size(), lengths.size() - 1) << "all but the empty one";
    for (const auto& [document, positions] : seen)
      EXPECT_EQ(positions, std::vector<int>(positions.size(), 1)) << "document " << document;
    EXPECT_EQ(window.positions(), std::accumulate(lengths.begin(), lengths.end(), int64_t{0}));
    EXPECT_EQ(window.empty_documents(), 1);
  }
}

TEST(Window, only_the_fixed_cut_divides_a_document_that_fits_into_a_row) {
  for (const Method method : kAllMethods) {
    const auto lengths = mixed_lengths();
    const Window window = window_of(method, lengths);
    std::map<int64_t, int> pieces;
    for (const auto& row : rows_of(window))
      for (const Piece& piece : row) ++pieces[piece.document];
    int64_t cut = 0, longer = 0;
    for (const auto& [document, count] : pieces) {
      const int64_t length = lengths[static_cast<size_t>(document - 7)];
      cut += count > 1, longer += length > kLength;
      EXPECT_TRUE(method == Method::fixed || count == (length + kLength - 1) / kLength) << "document of " << length;
    }
    EXPECT_EQ(window.cut_documents(), cut);
    EXPECT_TRUE(method == Method::fixed ? cut > longer : cut == longer) << cut << " and " << longer;
  }
}

TEST(Window, the_fixed_cut_fills_all_rows_but_the_last) {
  const Window window = window_of(Method::fixed, mixed_lengths());
  const auto rows = rows_of(window);
  EXPECT_EQ(window.rows(), (window.positions() + kLength - 1) / kLength);
  for (size_t r = 0; r + 1 < rows.size(); ++r) EXPECT_EQ(used(rows[r]), kLength);
  int64_t last = 0;
  for (const auto& row : rows)
    for (const Piece& piece : row) {
      EXPECT_GE(piece.document, last) << "documents in their order";
      last = piece.document;
    }
}

TEST(Window, one_document_per_row_where_rows_are_not_shared) {
  for (const Method method : {Method::none, Method::length_groups}) {
    const auto rows = rows_of(window_of(method, mixed_lengths()));
    for (const auto& row : rows) EXPECT_EQ(row.size(), 1u);
    const auto longer = [](const auto& a, const auto& b) { return a[0].count > b[0].count; };
    EXPECT_EQ(std::is_sorted(rows.begin(), rows.end(), longer), method == Method::length_groups);
  }
}

// Best-fit decreasing by its definition, without any of the tables that make it quick.
int64_t bins_by_definition(std::vector<int32_t> sizes, int32_t capacity) {
  std::stable_sort(sizes.begin(), sizes.end(), std::greater<>());
  std::vector<int32_t> free;
  for (const int32_t size : sizes) {
    int32_t* best = nullptr;
    for (int32_t& space : free)
      if (space >= size && (!best || space < *best)) best = &space;
    if (best)
      *best -= size;
    else
      free.push_back(capacity - size);
  }
  return static_cast<int64_t>(free.size());
}

TEST(BestFit, needs_as_many_bins_as_its_definition) {
  for (const int32_t capacity : {1, 10, 64, 100, 5000}) {
    for (uint32_t seed = 1; seed <= 5; ++seed) {
      std::vector<int32_t> sizes;
      for (const int64_t x : log_normal_lengths(400, 0.3 * capacity, 0.8, seed))
        sizes.push_back(static_cast<int32_t>(std::min<int64_t>(x, capacity)));
      const Bins bins = best_fit_decreasing(sizes, capacity);
      EXPECT_EQ(static_cast<int64_t>(bins.begin.size()) - 1, bins_by_definition(sizes, capacity));
      EXPECT_EQ(bins.items.size(), sizes.size());
    }
  }
  EXPECT_EQ(best_fit_decreasing({}, 5).begin.size(), 1u);
}

// What the method is for: whole documents in rows that are full.
TEST(BestFit, rows_are_99_percent_full_on_log_normal_lengths) {
  for (const double sigma : {0.5, 1.0, 1.5}) {
    for (const double part : {1. / 16, 1. / 8, 1. / 4}) {
      const Window window = window_of(Method::best_fit, log_normal_lengths(20000, 4096 * part, sigma), 4096);
      EXPECT_GE(static_cast<double>(window.positions()), 0.99 * static_cast<double>(window.rows() * 4096)) << sigma;
    }
  }
}

}  // namespace
}  // namespace drivetrain::test
