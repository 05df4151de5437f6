// The state of a checkpoint into the objects of a run that was built anew, on any mesh: every rank reads the rectangles
// that it holds. Main thread.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include <drivetrain/checkpoint_store.h>
#include <drivetrain/mesh.h>
#include <drivetrain/state.h>

#include "internal.h"

namespace drivetrain {

// A visitor that loads. Padding becomes zero. A value whose dtype differs from the stored one is converted.
class DRIVETRAIN_INTERNAL LoadState final : public StateVisitor {
 public:
  // `counters`: as HeldState::counters had them. Both outlive this.
  LoadState(const Checkpoint& checkpoint, const Value& counters, const Mesh& mesh);

  void tensor(const std::string& name, at::Tensor& t, const Layout& layout) override;
  void integer(const std::string& name, int64_t& value) override;
  void number(const std::string& name, double& value) override;

  // After everything was visited: throws Error(checkpoint) that lists what the run wanted and the checkpoint does not
  // hold, or holds in another shape. Nothing of that was loaded.
  void throw_if_incomplete() const;
  // Names that the checkpoint holds and nobody on this rank asked for, sorted.
  std::set<std::string> unused() const;

 private:
  const Value* counter(const std::string& name);

  const Checkpoint& checkpoint_;
  const Value& counters_;
  const Mesh& mesh_;
  std::map<std::string, StoredTensor> stored_;
  std::set<std::string> used_;
  std::vector<std::string> problems_;
};

}  // namespace drivetrain
