#include "watch/in_time.h"

#include <charconv>

#include "store/client.h"

namespace drivetrain {

bool set_in_time(Store& store, const std::string& key, const std::string& value, double timeout_s) {
  auto* const client = dynamic_cast<StoreClient*>(&store);
  if (client) return client->ask_within(timeout_s, StoreRequestKind::set, key, value, 0).has_value();
  store.set(key, value);
  return true;
}

InTime<std::string> find_in_time(Store& store, const std::string& key, double timeout_s) {
  auto* const client = dynamic_cast<StoreClient*>(&store);
  if (!client) return {true, store.has(key) ? std::optional(store.get(key, timeout_s)) : std::nullopt};
  const auto has = client->ask_within(timeout_s, StoreRequestKind::has, key, "", 0);
  if (!has) return {};
  if (has->says != StoreAnswerKind::value) return {true, {}};
  const auto found = client->ask_within(timeout_s, StoreRequestKind::get, key, "", 0);
  if (!found) return {};
  return {true, found->says == StoreAnswerKind::value ? std::optional(found->text) : std::nullopt};
}

InTime<int64_t> add_in_time(Store& store, const std::string& key, int64_t delta, double timeout_s) {
  auto* const client = dynamic_cast<StoreClient*>(&store);
  if (!client) return {true, store.add(key, delta)};
  const auto sum = client->ask_within(timeout_s, StoreRequestKind::add, key, "", delta);
  if (!sum) return {};
  int64_t value = 0;
  std::from_chars(sum->text.data(), sum->text.data() + sum->text.size(), value);
  return {true, value};
}

}  // namespace drivetrain
