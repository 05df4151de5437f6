#include "study/least_squares.h"

// Without NDEBUG, uBLAS would check its results by arrays of its own, which C++20 cannot have (below).
#define BOOST_UBLAS_TYPE_CHECK 0
#include <boost/numeric/ublas/lu.hpp>
#include <boost/numeric/ublas/matrix.hpp>
#include <boost/numeric/ublas/vector.hpp>
#include <numeric>

namespace drivetrain::study {

namespace ublas = boost::numeric::ublas;

// uBLAS's own arrays call std::allocator::construct, which C++20 does not have any more.
using Matrix = ublas::matrix<double, ublas::row_major, std::vector<double>>;
using Vector = ublas::vector<double, std::vector<double>>;
using Order = ublas::permutation_matrix<size_t, std::vector<size_t>>;

// Of a column's squared length; columns are differences of small whole numbers, so what is left of a sum is rounding.
constexpr double kNothing = 1e-9;

double product(const Column& a, const Column& b) { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); }

std::vector<double> ColumnSpace::solve(const Column& values) const {
  Matrix gram(size(), size());
  Vector right(size());
  for (size_t i = 0; i < size(); ++i) {
    right(i) = product(columns_[i], values);
    for (size_t j = 0; j <= i; ++j) gram(i, j) = gram(j, i) = gram_[i][j];
  }
  Order order(size());
  ublas::lu_factorize(gram, order);
  ublas::lu_substitute(gram, order, right);
  return {right.begin(), right.end()};
}

Column ColumnSpace::residual(const Column& column) const {
  Column left = column;
  if (columns_.empty()) return left;
  const std::vector<double> share = solve(column);
  for (size_t i = 0; i < size(); ++i)
    for (size_t row = 0; row < left.size(); ++row) left[row] -= share[i] * columns_[i][row];
  return left;
}

bool ColumnSpace::add(const Column& column) {
  const Column left = residual(column);
  if (product(left, left) <= kNothing * product(column, column)) return false;
  columns_.push_back(column);
  gram_.emplace_back();
  for (const Column& other : columns_) gram_.back().push_back(product(column, other));
  return true;
}

}  // namespace drivetrain::study
