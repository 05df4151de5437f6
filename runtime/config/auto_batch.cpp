#include "config/auto_batch.h"

#include <optional>

#include "config/auto_switches.h"

namespace drivetrain {
namespace {

const char kTotalKey[] = "train_batch_size";
const char kMicroKey[] = "train_micro_batch_size_per_gpu";
const char kAccumulationKey[] = "gradient_accumulation_steps";

class BatchAutos {
 public:
  BatchAutos(Value& settings, Problems& problems) : settings_(settings), problems_(problems) {}

  void settle() {
    const auto total = take(kTotalKey), micro = take(kMicroKey), accumulation = take(kAccumulationKey);
    if (micro && !has(kTotalKey)) set(kMicroKey, *micro, 8, "per_device_train_batch_size of Hugging Face's Trainer");
    if (accumulation && !(has(kTotalKey) && has(kMicroKey)))
      set(kAccumulationKey, *accumulation, 1, "gradient_accumulation_steps of Hugging Face's Trainer");
    if (total && !has(kMicroKey))
      set(kMicroKey, *total, 8, "train_batch_size \"auto\": per_device_train_batch_size of Hugging Face's Trainer");
    const auto derived = [&](const char* key, const std::optional<Position>& where) {
      if (where && !has(key))
        problems_.resolve(*where, key, "from the others", "\"auto\": total = micro-batch x accumulation x ranks");
    };
    derived(kTotalKey, total), derived(kMicroKey, micro), derived(kAccumulationKey, accumulation);
  }

 private:
  bool has(const char* key) const { return settings_.find(key) && !settings_.find(key)->is_null(); }

  // The place of an "auto", which is taken out.
  std::optional<Position> take(const char* key) {
    const Value* const value = settings_.find(key);
    if (!is_auto(value)) return {};
    const Position where = value->where;
    settings_.erase(key);
    return where;
  }

  void set(const char* key, const Position& where, int64_t number, const std::string& rule) {
    Value value(number);
    value.where = value.key_where = where;
    settings_.set(key, std::move(value));
    problems_.resolve(where, key, concat(number), "\"auto\": " + rule);
  }

  Value& settings_;
  Problems& problems_;
};

}  // namespace

void settle_batch_sizes(Value& settings, Problems& problems) { BatchAutos(settings, problems).settle(); }

}  // namespace drivetrain
