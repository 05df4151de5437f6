#include "state/absent_rows.h"

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

namespace drivetrain {
namespace {

constexpr int64_t kElementsAtOnce = int64_t{1} << 20;  // elements of a file at a time
constexpr int64_t kColumnsOfThread = 256;              // that a thread adds up at least

int64_t columns_of(const std::vector<int64_t>& shape, bool transposed) {
  if (transposed) return shape.front();
  int64_t columns = 1;
  for (size_t dim = 1; dim < shape.size(); ++dim) columns *= shape[dim];
  return columns;
}

// sums[column + c] += each row of a matrix, in order.
void add_rows(const at::Tensor& rows, at::Tensor& sums, int64_t column) {
  const at::Tensor values = rows.to(at::kDouble).contiguous();
  const double* const from = values.const_data_ptr<double>();
  double* const to = sums.mutable_data_ptr<double>() + column;
  const int64_t count = values.size(0), columns = values.size(1);
  at::parallel_for(0, columns, kColumnsOfThread, [=](int64_t begin, int64_t end) {
    for (int64_t r = 0; r < count; ++r)
      for (int64_t c = begin; c < end; ++c) to[c] += from[r * columns + c];
  });
}

}  // namespace

std::string name_in(const WeightSource& file, const WeightRules& rules, const WeightPart& part) {
  if (const std::string name = part.prefixed ? rules.prefix + part.name : part.name; file.contains(name)) return name;
  return file.contains(part.name) ? part.name : "";
}

int64_t rows_there(const WeightSource& file, const std::string& name, bool transposed, const WeightPart& part) {
  if (part.absent == AbsentRows::refused) return part.rows;
  const std::vector<int64_t> shape = file.shape(name);
  return std::clamp<int64_t>((transposed ? shape.back() : shape.front()) - part.first, 0, part.rows);
}

std::vector<AddedRows> added_rows(const WeightSource& file, const WeightRules& rules) {
  std::vector<AddedRows> all;
  for (const WeightRule& rule : rules.rules)
    for (const WeightPart& part : rule.parts) {
      if (part.absent == AbsentRows::refused) continue;
      const int64_t there = rows_there(file, name_in(file, rules, part), rule.transposed, part);
      if (there < part.rows) all.push_back({rule.param, part.first + there, part.rows - there, part.absent});
    }
  return all;
}

at::Tensor mean_row(const WeightSource& file, const std::string& name, const WeightRule& rule,
                    const std::vector<std::string>& names) {
  const int64_t columns = columns_of(file.shape(name), rule.transposed);
  at::Tensor sums = at::zeros({columns}, at::TensorOptions(at::kDouble));
  int64_t count = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] != name) continue;
    const int64_t first = rule.parts[i].first, rows = rows_there(file, name, rule.transposed, rule.parts[i]);
    count += rows;
    const int64_t length = rule.transposed ? columns : rows,
                  across = rule.transposed ? file.shape(name).back() : columns;
    const int64_t piece = std::max<int64_t>(1, kElementsAtOnce / std::max<int64_t>(across, 1));
    for (int64_t at = 0; at < length; at += piece) {
      const int64_t some = std::min(piece, length - at);
      if (rule.transposed)
        add_rows(file.rows(name, at, some).t().narrow(0, first, rows), sums, at);
      else
        add_rows(file.rows(name, first + at, some).reshape({some, columns}), sums, 0);
    }
  }
  return sums.div_(static_cast<double>(count)).to(at::kFloat);
}

}  // namespace drivetrain
