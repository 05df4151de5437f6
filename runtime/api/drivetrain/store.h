// The key-value store of a run, shared by all ranks, for rendezvous and small values, never for tensors. Owned by the
// runtime. Between processes, rank 0 holds the store and the others connect to it; threads of one process share a map.
// Limits: 64 MB per value, 512 MB in total.
//
// Thread: any; a call that waits does not block other calls. Every call ends in bounded time. Error(communication)
// names the key and the cause: rank 0 does not answer, or the rank that should set the key has ended.
#pragma once

#include <cstdint>
#include <string>

#include <drivetrain/export.h>

DRIVETRAIN_CONTRACT(store)

namespace drivetrain {

class DRIVETRAIN_API Store {
 public:
  virtual ~Store();
  // Sets or replaces the value of a key.
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Waits until the key is set and returns its value. Throws Error(communication) naming the key after timeout_s
  // seconds (about 2 s later if rank 0 does not answer).
  virtual std::string get(const std::string& key, double timeout_s) = 0;
  // Whether the key is set. Does not wait for it.
  virtual bool has(const std::string& key) = 0;
  // Adds `delta` to a counter, which starts at 0, and returns the new value. Atomic over all ranks.
  virtual int64_t add(const std::string& key, int64_t delta) = 0;
};

}  // namespace drivetrain
