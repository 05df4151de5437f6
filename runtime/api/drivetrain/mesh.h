// The device mesh: named axes whose sizes multiply to the world size, and the communicator groups along them.
//
// Axes are listed fastest first (tp cp dp pp, or any name a plugin claims): rank = i_0 + s_0 * (i_1 + s_1 * (...)).
// An absent axis has size 1, index 0 and a loopback group, so nobody writes "if enabled". Owned by the runtime; plugins
// get it in Services::mesh. Thread: main.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <drivetrain/communicator.h>

DRIVETRAIN_CONTRACT(mesh)

namespace drivetrain {

struct Axis {
  std::string name;
  int64_t size = 1;
  int64_t index = 0;  // this rank's coordinate
  // True: ranks along this axis compute with different data (dp, cp, ep). A parameter's gradient is summed over those
  // of these axes along which ranks hold copies of the parameter; see Param::reduction_axes.
  bool joins_gradients = false;
};

class DRIVETRAIN_API Mesh {
 public:
  // `axes`: fastest first; the sizes multiply to world_size. `communicator` may be null if every axis has size 1.
  // `device`: the run's; loopback groups allocate there.
  Mesh(std::vector<Axis> axes, int64_t rank, int64_t world_size, std::shared_ptr<Communicator> communicator,
       const at::Device& device = at::Device(at::kCPU));

  const std::vector<Axis>& axes() const { return axes_; }
  int64_t rank() const { return rank_; }
  int64_t world_size() const { return world_size_; }
  int64_t size(const std::string& axis) const;
  int64_t index(const std::string& axis) const;

  // The group of the ranks that differ from this one in the named axes only. The first call with these axes makes the
  // group and is collective: all ranks make these calls in the same order. Later calls return the same group. An empty
  // list, or axes of size 1, give a loopback group. Not during Strategy::build. Error(communication) if a rank is late.
  GroupPtr group(const std::vector<std::string>& axes) const;
  GroupPtr group(const std::string& axis) const { return group(std::vector<std::string>{axis}); }
  GroupPtr world() const;
  // The global ranks of group(axes), ascending. No communication.
  std::vector<int64_t> ranks(const std::vector<std::string>& axes) const;
  // A new group of those ranks of group(axis) whose coordinate is in `coordinates`; this rank's coordinate is among
  // them. `label` distinguishes groups of the same ranks. Collective over the members, in the same order on each; once
  // each.
  GroupPtr subgroup(const std::string& axis, const std::vector<int64_t>& coordinates, const std::string& label) const;

 private:
  GroupPtr make_group(const std::vector<int64_t>& ranks, const std::string& label) const;

  std::vector<Axis> axes_;
  int64_t rank_, world_size_;
  std::shared_ptr<Communicator> communicator_;
  at::Device device_;
  mutable std::map<std::string, GroupPtr> groups_;
};

}  // namespace drivetrain
