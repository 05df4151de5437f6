#include "rendezvous/gather_values.h"

#include <algorithm>

#include <drivetrain/error.h>

namespace drivetrain {

std::vector<Value> gather_values(Store& store, const std::string& key, const RankEnvironment& env, const Value& mine,
                                 double timeout_s) {
  const auto key_of = [&](int64_t rank) { return concat(key, "/", rank); };
  if (env.rank != 0) {
    store.set(key_of(env.rank), mine.to_json());
    return {};
  }
  std::vector<int64_t> others;
  for (int64_t rank = 1; rank < env.world_size; ++rank) others.push_back(rank);
  std::vector<Value> all{mine};
  for (const std::string& text : values_of_ranks(store, others, key_of, concat("tell \"", key, "\""), timeout_s))
    all.push_back(parse_json(text, key));
  return all;
}

bool any_of_ranks(Store& store, const std::string& key, const RankEnvironment& env, bool mine, double timeout_s) {
  const std::vector<Value> all = gather_values(store, key, env, Value(mine), timeout_s);
  const std::string answer = key + "/any";
  if (env.rank != 0) return store.get(answer, timeout_s) == "1";
  const bool any = std::any_of(all.begin(), all.end(), [](const Value& one) { return one.as_bool(); });
  store.set(answer, any ? "1" : "0");
  return any;
}

}  // namespace drivetrain
