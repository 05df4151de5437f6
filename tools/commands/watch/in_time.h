// Calls of the store for whoever watches the run while rank 0 may be stopped: they end after timeout_s without harm to
// others. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <drivetrain/store.h>

namespace drivetrain {

template <class T>
struct InTime {
  bool answered = false;     // false: rank 0 gave no answer in time
  std::optional<T> value{};  // nothing: the key is not set
};
bool set_in_time(Store& store, const std::string& key, const std::string& value, double timeout_s);
InTime<std::string> find_in_time(Store& store, const std::string& key, double timeout_s);
InTime<int64_t> add_in_time(Store& store, const std::string& key, int64_t delta, double timeout_s);

}  // namespace drivetrain
