#include <drivetrain/param.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include <drivetrain/error.h>
#include <drivetrain/mesh.h>

namespace drivetrain {
namespace {

bool contains(const std::vector<std::string>& list, const std::string& axis) {
  return std::find(list.begin(), list.end(), axis) != list.end();
}

bool cuts(const Layout& layout, const std::string& axis) {
  return std::any_of(layout.dims.begin(), layout.dims.end(),
                     [&](const DimSplit& dim) { return contains(dim.axes, axis); });
}

// A named axis that the mesh does not have is one of size 1.
void check_named(const Param& param, const Axis& axis) {
  const auto refuse = [&](const auto&... why) {
    throw fail(ErrorCode::plugin, param.name, ": its reduction axis \"", axis.name, "\" ", why...);
  };
  if (cuts(param.layout, axis.name))
    refuse("cuts its layout: ranks along it hold different parts, whose gradients have no sum. Leave it out");
  if (!axis.joins_gradients)
    refuse("does not join gradients. Where gradients are partial sums along it, name it in Layout::partial_over");
}

}  // namespace

const char* role_name(ParamRole role) {
  constexpr const char* kNames[] = {"matrix", "bias", "norm", "embedding", "output", "router", "expert", "adapter"};
  const auto at = static_cast<size_t>(role);
  if (at < std::size(kNames)) return kNames[at];
  throw fail(ErrorCode::internal, "a parameter's role is the number ", static_cast<int>(role));
}

Param::Param(std::string n, Layout l, InitRule i) : name(std::move(n)), layout(std::move(l)), init(i) {}

void Param::complete_grad() {
  if (const GradWrite write = write_grad(); !write.add) write.slot.zero_();
}

void accumulate_grad(Param& param, const at::Tensor& gradient) {
  const Param::GradWrite write = param.write_grad();
  if (write.add)
    write.slot.add_(gradient);
  else
    write.slot.copy_(gradient);
}

std::vector<std::string> reduction_axes(const Param& param, const Mesh& mesh) {
  std::vector<std::string> axes;
  for (const Axis& axis : mesh.axes()) {
    if (axis.size == 1) continue;
    const bool named = param.reduction_axes && contains(*param.reduction_axes, axis.name);
    if (named) check_named(param, axis);
    const bool copied = axis.joins_gradients && !cuts(param.layout, axis.name);
    if (param.reduction_axes ? named : copied) axes.push_back(axis.name);
  }
  return axes;
}

}  // namespace drivetrain
