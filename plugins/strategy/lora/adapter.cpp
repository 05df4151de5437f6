#include "adapter.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include <drivetrain/error.h>
#include <drivetrain/mesh.h>
#include <drivetrain/random.h>

namespace drivetrain::lora {
namespace {

DimSplit dim_of(const Layout& layout, size_t dim) { return layout.dims.empty() ? DimSplit{} : layout.dims[dim]; }

void add_axes(std::vector<std::string>& to, const std::vector<std::string>& axes) {
  for (const std::string& axis : axes)
    if (std::find(to.begin(), to.end(), axis) == to.end()) to.push_back(axis);
}

struct Rows {
  int64_t first = 0, count = 0;  // of this rank
  std::vector<int64_t> blocks;   // of the whole weight, that the module is made of
};

// Each block is cut evenly, so that a module of whole blocks has as large a part of each rank's rows.
Rows rows_on_rank(const LinearSpec& spec, const Layout& weight, const Module& module) {
  const DimSplit split = dim_of(weight, 0);
  if (split.axes.empty()) return {module.first, module.rows, {}};
  const std::vector<int64_t> blocks =
      split.blocks.empty() ? std::vector<int64_t>{weight.global_shape[0]} : split.blocks;
  const std::vector<int64_t> own = spec.blocks.empty() ? std::vector<int64_t>{spec.out} : spec.blocks;
  if (own.size() != blocks.size())
    throw fail(ErrorCode::plugin, "strategy/lora: layer ", spec.name, " is asked for with ", own.size(),
               " blocks of outputs, and its weight's layout has ", blocks.size());
  Rows rows;
  int64_t begin = 0;
  for (size_t i = 0; i < blocks.size(); begin += blocks[i], ++i) {
    if (begin + blocks[i] <= module.first) rows.first += own[i];
    const bool inside = begin >= module.first && begin + blocks[i] <= module.first + module.rows;
    if (inside) rows.count += own[i], rows.blocks.push_back(blocks[i]);
  }
  if (std::accumulate(rows.blocks.begin(), rows.blocks.end(), int64_t{0}) != module.rows)
    throw fail(ErrorCode::config, module.path, " is a part of a block of ", spec.name,
               ", whose rows are cut over ranks; leave it out of ", kTargets, " or do without tensor parallelism");
  return rows;
}

}  // namespace

Adapter make_adapter(const LinearSpec& spec, const Wish& wish, bool gaussian, const Mesh& mesh) {
  const Layout weight = weight_layout(spec);
  const int64_t in = weight.global_shape[1], r = wish.rank;
  const Rows rows = rows_on_rank(spec, weight, wish.module);
  const DimSplit outputs = dim_of(weight, 0), inputs = dim_of(weight, 1);

  Layout a = Layout::whole({r, in}), b = Layout::whole({wish.module.rows, r});
  a.partial_over = b.partial_over = weight.partial_over;
  if (!inputs.axes.empty()) a.dims = {{}, inputs}, add_axes(b.partial_over, inputs.axes);
  if (!outputs.axes.empty()) {
    DimSplit own{outputs.axes, {}, outputs.padded_to};
    if (rows.blocks.size() > 1) own.blocks = rows.blocks;
    b.dims = {own, {}}, add_axes(a.partial_over, outputs.axes);
  }
  const std::string& path = wish.module.path;
  const std::string name = spec.name + "." + path.substr(path.rfind('.') + 1);
  const InitRule init = gaussian ? InitRule::normal(1 / static_cast<double>(r))
                                 : InitRule::uniform(1 / std::sqrt(static_cast<double>(in)));
  std::vector<Layout::Range> columns = a.ranges(1, mesh);
  Adapter adapter{wish,
                  std::make_shared<Param>(name + ".lora_A", std::move(a), init),
                  std::make_shared<Param>(name + ".lora_B", std::move(b), InitRule::zeros()),
                  rows.first,
                  rows.count,
                  std::move(columns)};
  adapter.a->role = adapter.b->role = ParamRole::adapter;
  return adapter;
}

at::Tensor dropout_factors(const at::Tensor& x, double p, const DropoutKeys& keys, const Adapter& adapter) {
  const auto positions = [](const std::vector<RowRange>& ranges) {
    int64_t count = 0;
    for (const RowRange& range : ranges) count += range.count;
    return count;
  };
  RandomKey key = keys.key;
  if (x.dim() == 3 && x.size(1) == positions(keys.inside))
    key.rows = keys.inside;
  else if (x.dim() == 3 && x.size(1) == positions(keys.between))
    key.rows = keys.between;
  else
    throw fail(ErrorCode::internal, "strategy/lora: dropout of an input of shape ", x.sizes(),
               ", wanted [B, S, columns] with ", positions(keys.inside), " or ", positions(keys.between), " positions");
  // Numbers of the whole tensor, of which a rank may have some columns.
  at::Tensor u = at::empty({x.size(0), x.size(1), adapter.a->layout.global_shape[1]}, x.options().dtype(at::kFloat));
  fill_uniform(u, key);
  std::vector<at::Tensor> columns;
  for (const Layout::Range& range : adapter.columns) columns.push_back(u.narrow(2, range.first, range.count));
  const at::Tensor own = columns.size() == 1 ? columns[0] : at::cat(columns, 2);
  return own.ge(p).to(x.scalar_type()).mul_(1 / (1 - p));
}

}  // namespace drivetrain::lora
