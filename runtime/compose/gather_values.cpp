#include "compose/gather_values.h"

#include <drivetrain/error.h>

namespace drivetrain {

std::vector<Value> gather_values(Store& store, const std::string& key, const RankEnvironment& env, const Value& mine,
                                 double timeout_s) {
  const auto key_of = [&](int64_t rank) { return concat(key, "/", rank); };
  if (env.rank != 0) {
    store.set(key_of(env.rank), mine.to_json());
    return {};
  }
  std::vector<Value> all{mine};
  for (int64_t rank = 1; rank < env.world_size; ++rank)
    all.push_back(parse_json(store.get(key_of(rank), timeout_s), key_of(rank)));
  return all;
}

}  // namespace drivetrain
