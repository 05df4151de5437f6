// The key-value store that all ranks of a run share: rendezvous and small facts, never tensors. Owned by the runtime
// (LibTorch's TCPStore between processes, a map between threads). Thread: any.
#pragma once

#include <cstdint>
#include <string>

#include <drivetrain/export.h>

namespace drivetrain {

class DRIVETRAIN_API Store {
 public:
  virtual ~Store();
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Blocks until the key is there. Throws Error(communication) naming the key after timeout_s seconds.
  virtual std::string get(const std::string& key, double timeout_s) = 0;
  virtual bool has(const std::string& key) = 0;
  // Adds to a counter (0 at first) and returns the new value.
  virtual int64_t add(const std::string& key, int64_t delta) = 0;
};

}  // namespace drivetrain
