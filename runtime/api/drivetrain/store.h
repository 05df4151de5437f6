// The key-value store that all ranks of a run share: rendezvous and small facts, never tensors. Owned by the runtime.
// Between processes rank 0 holds it and the others ask it over a connection; threads of one process share a map. Values
// are bounded (64 MB one, 512 MB all).
//
// Thread: any; a wait keeps no other call. Every call ends: Error(communication) names the key and what it waited for -
// rank 0 that does not answer, or, where the key is not there, the rank whose end or death means that it will not come.
#pragma once

#include <cstdint>
#include <string>

#include <drivetrain/export.h>

DRIVETRAIN_CONTRACT(store)

namespace drivetrain {

class DRIVETRAIN_API Store {
 public:
  virtual ~Store();
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Blocks until the key is there. Throws Error(communication) naming the key after timeout_s seconds (some 2 s later
  // where rank 0 does not even answer that it is not there).
  virtual std::string get(const std::string& key, double timeout_s) = 0;
  virtual bool has(const std::string& key) = 0;
  // Adds to a counter (0 at first) and returns the new value.
  virtual int64_t add(const std::string& key, int64_t delta) = 0;
};

}  // namespace drivetrain
