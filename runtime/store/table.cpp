#include "store/table.h"

#include <charconv>
#include <chrono>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/standstill.h>

namespace drivetrain {
namespace {

constexpr size_t kEntryBytes = 128;  // what a map takes beside the text
constexpr size_t kMostReason = 4096;

std::string beginning(const std::string& key) { return key.size() <= 80 ? key : key.substr(0, 80) + "..."; }

}  // namespace

void StoreTable::check(const std::string& key, const std::string& value, const StoreBounds& bounds) {
  if (key.size() > bounds.key)
    throw fail(ErrorCode::communication, "the key \"", beginning(key), "\" has ", key.size(),
               " bytes; the ranks' store takes keys of up to ", bounds.key);
  if (value.size() > bounds.value)
    throw fail(ErrorCode::communication, "the value of \"", beginning(key), "\" has ", value.size(),
               " bytes; the ranks' store takes values of up to ", bounds.value,
               ". It is for small facts: move tensors by the communicator");
}

void StoreTable::keep(const std::string& key, const std::string& value) {
  check(key, value, bounds_);
  const auto found = values_.find(key);
  const size_t before = found == values_.end() ? 0 : kEntryBytes + key.size() + found->second.size();
  const size_t after = bytes_ - before + kEntryBytes + key.size() + value.size();
  if (after > bounds_.all)
    throw fail(ErrorCode::communication, "the value of \"", beginning(key), "\" has ", value.size(),
               " bytes, for which the ranks' store has no room: it takes ", bounds_.all, " bytes in all and holds ",
               bytes_, ". It is for small facts: move tensors by the communicator");
  values_[key] = value;
  bytes_ = after;
}

void StoreTable::set(const std::string& key, const std::string& value) {
  {
    const std::lock_guard lock(mutex_);
    if (key == kStopped)
      values_.emplace(key, value.substr(0, kMostReason));  // there is room for it in a full table, too
    else
      keep(key, value);
  }
  tell(key);
}

int64_t StoreTable::add(const std::string& key, int64_t delta) {
  int64_t value = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto found = values_.find(key);
    if (found != values_.end()) {
      const std::string& text = found->second;
      const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (failed != std::errc() || end != text.data() + text.size())
        throw fail(ErrorCode::communication, "\"", beginning(key), "\" in the ranks' store is no counter");
    }
    if (__builtin_add_overflow(value, delta, &value))
      throw fail(ErrorCode::communication, "the counter \"", beginning(key), "\" in the ranks' store is full");
    keep(key, std::to_string(value));  // counters are keys like others: has and get see them
  }
  tell(key);
  return value;
}

std::optional<std::string> StoreTable::find(const std::string& key) const { return wait(key, 0); }

std::optional<std::string> StoreTable::wait(const std::string& key, double timeout_s) const {
  std::unique_lock lock(mutex_);
  const auto answered = [&] { return values_.count(key) != 0 || values_.count(kStopped) != 0; };
  const auto deadline =
      std::chrono::steady_clock::now() +
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(timeout_s));
  if (!answered() && (timeout_s <= 0 || !wait_patiently(changed_, lock, deadline, answered))) return std::nullopt;
  const auto found = values_.find(key);
  if (found == values_.end()) throw Error(ErrorCode::communication, values_.at(kStopped));
  return found->second;
}

std::string StoreTable::peek(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = values_.find(key);
  return found == values_.end() ? "" : found->second;
}

size_t StoreTable::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

void StoreTable::on_change(std::function<void(const std::string&)> listener) {
  const std::lock_guard lock(listener_mutex_);
  listener_ = std::move(listener);
}

void StoreTable::tell(const std::string& key) {
  changed_.notify_all();
  const std::lock_guard lock(listener_mutex_);
  if (listener_) listener_(key);
}

}  // namespace drivetrain
