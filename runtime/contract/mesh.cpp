#include <drivetrain/mesh.h>

#include <algorithm>

#include <drivetrain/error.h>

namespace drivetrain {

Mesh::Mesh(std::vector<Axis> axes, int64_t rank, int64_t world_size, std::shared_ptr<Communicator> communicator,
           const at::Device& device)
    : axes_(std::move(axes)),
      rank_(rank),
      world_size_(world_size),
      communicator_(std::move(communicator)),
      device_(device) {
  int64_t product = 1, rest = rank;
  for (Axis& axis : axes_) {
    product *= axis.size;
    axis.index = rest % axis.size;
    rest /= axis.size;
  }
  if (product != world_size)
    throw fail(ErrorCode::internal, "mesh axes multiply to ", product, ", the world has ", world_size, " ranks");
}

int64_t Mesh::size(const std::string& name) const {
  for (const Axis& axis : axes_)
    if (axis.name == name) return axis.size;
  return 1;
}

int64_t Mesh::index(const std::string& name) const {
  for (const Axis& axis : axes_)
    if (axis.name == name) return axis.index;
  return 0;
}

std::vector<int64_t> Mesh::ranks(const std::vector<std::string>& names) const {
  std::vector<int64_t> ranks = {rank_};
  int64_t stride = 1;
  for (const Axis& axis : axes_) {
    if (std::find(names.begin(), names.end(), axis.name) != names.end()) {
      std::vector<int64_t> wider;
      for (int64_t i = 0; i < axis.size; ++i)
        for (int64_t r : ranks) wider.push_back(r + (i - axis.index) * stride);
      ranks = std::move(wider);
    }
    stride *= axis.size;
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

GroupPtr Mesh::group(const std::vector<std::string>& names) const {
  std::string label;
  for (const Axis& axis : axes_)
    if (axis.size > 1 && std::find(names.begin(), names.end(), axis.name) != names.end())
      label += (label.empty() ? "" : "+") + axis.name;
  GroupPtr& group = groups_[label];
  if (!group) group = make_group(ranks(names), label);
  return group;
}

GroupPtr Mesh::make_group(const std::vector<int64_t>& ranks, const std::string& label) const {
  if (ranks.size() == 1) return loopback_group(rank_, device_, label.empty() ? "self" : label);
  if (!communicator_) throw fail(ErrorCode::internal, "group ", label, " asked of a mesh without a communicator");
  // Groups of one label differ by their first rank, and need store keys of their own.
  return communicator_->make_group(ranks, concat(label, "@", ranks.front()));
}

GroupPtr Mesh::subgroup(const std::string& name, const std::vector<int64_t>& coordinates,
                        const std::string& label) const {
  std::vector<int64_t> members;
  const std::vector<int64_t> line = ranks({name});  // in order of the coordinate
  const auto size = static_cast<int64_t>(line.size());
  for (const int64_t at : coordinates) {
    if (at < 0 || at >= size)
      throw fail(ErrorCode::plugin, "group \"", label, "\" is to have position ", at, " of the axis ", name,
                 ", which has positions 0 to ", size - 1);
    members.push_back(line[static_cast<size_t>(at)]);
  }
  std::sort(members.begin(), members.end());
  if (std::adjacent_find(members.begin(), members.end()) != members.end())
    throw fail(ErrorCode::plugin, "group \"", label, "\" is to have a position of the axis ", name,
               " twice; wanted each once");
  if (std::find(members.begin(), members.end(), rank_) == members.end())
    throw fail(ErrorCode::internal, "rank ", rank_, " asks for group ", label, ", of which it is no member");
  return make_group(members, label);
}

GroupPtr Mesh::world() const {
  std::vector<std::string> names;
  for (const Axis& axis : axes_) names.push_back(axis.name);
  return group(names);
}

}  // namespace drivetrain
