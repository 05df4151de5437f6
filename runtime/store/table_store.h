// Stores that hold the table themselves: one process, ranks that are threads, and rank 0 of several processes.
#pragma once

#include <string>

#include <drivetrain/store.h>

#include "internal.h"
#include "store/server.h"
#include "store/table.h"

namespace drivetrain {

class TableStore : public Store {
 public:
  // `place` ends the message about a key that nobody set: " at 127.0.0.1:29500".
  explicit TableStore(std::string place = "") : place_(std::move(place)) {}

  void set(const std::string& key, const std::string& value) override { table_.set(key, value); }
  std::string get(const std::string& key, double timeout_s) override;
  bool has(const std::string& key) override { return table_.find(key).has_value(); }
  int64_t add(const std::string& key, int64_t delta) override { return table_.add(key, delta); }

 protected:
  StoreTable table_;

 private:
  const std::string place_;
};

// Rank 0's own, which serves the others. Destroying it waits up to a second for the others to leave, so that they read
// the last word; where an exception is on its way through, that word is that rank 0 stopped.
class DRIVETRAIN_INTERNAL Rank0Store final : public TableStore {
 public:
  Rank0Store(const std::string& address, ServedBy served_by);
  ~Rank0Store() override;

 private:
  StoreServer server_;
};

}  // namespace drivetrain
