#include "store/table_store.h"

#include <exception>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

constexpr double kOthersMayTakeS = 1;

}  // namespace

std::string TableStore::get(const std::string& key, double timeout_s) {
  if (const auto value = table_.wait(key, timeout_s)) return *value;
  throw fail(ErrorCode::communication, "no rank set \"", key, "\" in the store", place_, " within ", timeout_s, " s");
}

Rank0Store::Rank0Store(const std::string& address, ServedBy served_by)
    : TableStore(" at " + address), server_(table_, std::move(served_by)) {}

Rank0Store::~Rank0Store() {
  if (std::uncaught_exceptions() > 0) table_.set(kStopped, "rank 0 stopped; its own message says why");
  server_.wait_until_left(kOthersMayTakeS);
}

}  // namespace drivetrain
