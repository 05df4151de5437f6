// train_batch_size = train_micro_batch_size_per_gpu * gradient_accumulation_steps * data-parallel ranks.
// DeepSpeed's rule, with exact division instead of rounding and with the legal numbers in the message.
#include <optional>
#include <set>

#include <drivetrain/toolkit/text.h>

#include "config/auto_switches.h"
#include "config/run_settings.h"

namespace drivetrain {
namespace {

const char kTotal[] = "train_batch_size";
const char kMicro[] = "train_micro_batch_size_per_gpu";
const char kAccumulation[] = "gradient_accumulation_steps";

std::string ranks_text(int64_t ranks) {
  return concat(ranks, ranks == 1 ? " data-parallel rank" : " data-parallel ranks");
}

// -1 on overflow.
int64_t product(int64_t a, int64_t b, int64_t c = 1) {
  int64_t ab, abc;
  return __builtin_mul_overflow(a, b, &ab) || __builtin_mul_overflow(ab, c, &abc) ? -1 : abc;
}

// Up to five divisors of n, those nearest to `wish`.
std::string divisors_near(int64_t n, int64_t wish) {
  std::set<int64_t> all;
  for (int64_t d = 1; d <= 1'000'000 && d * d <= n; ++d) {
    if (n % d == 0) all.insert({d, n / d});
  }
  while (all.size() > 5) {
    const int64_t low = wish - *all.begin(), high = *all.rbegin() - wish;
    all.erase(low > high ? *all.begin() : *all.rbegin());
  }
  return join(all);
}

// Multiples of `step` on both sides of `wish`.
std::string multiples_near(int64_t step, int64_t wish) {
  const int64_t below = wish / step * step;
  return below > 0 ? concat(below, " or ", below + step) : concat(below + step);
}

// "auto" in the three sizes.
class BatchAutos {
 public:
  BatchAutos(Value& settings, Problems& problems) : settings_(settings), problems_(problems) {}

  void settle() {
    const auto total = take(kTotal), micro = take(kMicro), accumulation = take(kAccumulation);
    if (micro && !has(kTotal)) set(kMicro, *micro, 8, "per_device_train_batch_size of Hugging Face's Trainer");
    if (accumulation && !(has(kTotal) && has(kMicro)))
      set(kAccumulation, *accumulation, 1, "gradient_accumulation_steps of Hugging Face's Trainer");
    if (total && !has(kMicro))
      set(kMicro, *total, 8, "train_batch_size \"auto\": per_device_train_batch_size of Hugging Face's Trainer");
    const auto derived = [&](const char* key, const std::optional<Position>& where) {
      if (where && !has(key))
        problems_.resolve(*where, key, "from the others", "\"auto\": total = micro-batch x accumulation x ranks");
    };
    derived(kTotal, total), derived(kMicro, micro), derived(kAccumulation, accumulation);
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

class BatchSolver {
 public:
  BatchSolver(const RunSettings& s, int64_t ranks, Problems& problems)
      : total_(s.train_batch_size),
        micro_(s.micro_batch_size),
        accumulation_(s.accumulation),
        ranks_(ranks),
        where_(s.batch_where),
        problems_(problems) {}

  BatchSizes solve() {
    if (!total_ && !micro_) return nothing_given();
    if (total_ && micro_ && accumulation_) return check_all();
    if (total_ && micro_) return {*total_, *micro_, divide(kMicro, *micro_, kAccumulation)};
    if (total_ && accumulation_) return {*total_, divide(kAccumulation, *accumulation_, kMicro), *accumulation_};
    if (total_) return {*total_, divide(kAccumulation, 1, kMicro), 1};
    return multiply(*micro_, accumulation_.value_or(1));
  }

 private:
  BatchSizes nothing_given() {
    problems_.add(where_, concat("neither ", kTotal, " nor ", kMicro, " is given",
                                 accumulation_ ? concat(" (only ", kAccumulation, ")") : "",
                                 "\n   give one of them, or two of ", kTotal, ", ", kMicro, " and ", kAccumulation));
    return {};
  }

  BatchSizes multiply(int64_t micro, int64_t accumulation) {
    const int64_t total = product(micro, accumulation, ranks_);
    if (total < 0)
      problems_.add(where_, concat(kMicro, " ", micro, " x ", kAccumulation, " ", accumulation, " x ",
                                   ranks_text(ranks_), " is too large"));
    return {std::max<int64_t>(total, 1), micro, accumulation};
  }

  BatchSizes check_all() {
    const int64_t total = product(*micro_, *accumulation_, ranks_);
    if (total == *total_) return {*total_, *micro_, *accumulation_};
    std::string legal = concat("\n   legal: ", kTotal, " ", total);
    if (*total_ % (*micro_ * ranks_) == 0) legal += concat("; or ", kAccumulation, " ", *total_ / (*micro_ * ranks_));
    if (*total_ % (*accumulation_ * ranks_) == 0)
      legal += concat("; or ", kMicro, " ", *total_ / (*accumulation_ * ranks_));
    problems_.add(where_, concat("all three batch sizes are given and contradict each other: ", kTotal, " is ", *total_,
                                 ", but ", kMicro, " ", *micro_, " x ", kAccumulation, " ", *accumulation_, " x ",
                                 ranks_text(ranks_), " = ", total, legal, "; or leave one of the three out"));
    return {};
  }

  // total / (given * ranks), which has to come out even; `derived` is the key it stands for.
  int64_t divide(const char* key, int64_t given, const char* derived) {
    const int64_t share = product(given, ranks_);
    if (share > 0 && *total_ % share == 0) return *total_ / share;
    const bool is_given = key == kMicro || accumulation_;
    std::string legal = concat("\n   legal: ", kTotal, " ", share > 0 ? multiples_near(share, *total_) : "larger");
    if (is_given && *total_ % ranks_ == 0) legal += concat("; or ", key, " ", divisors_near(*total_ / ranks_, given));
    problems_.add(where_,
                  concat("given are ", kTotal, " ", *total_, is_given ? concat(" and ", key, " ", given) : "",
                         is_given ? "" : concat(" alone (so ", key, " is 1)"), "; ", derived, " would be ", *total_,
                         " / ", is_given ? concat("(", given, " x ", ranks_text(ranks_), ")") : ranks_text(ranks_),
                         ", which is not a whole number", legal));
    return 1;
  }

  const std::optional<int64_t> total_, micro_, accumulation_;
  const int64_t ranks_;
  const Position where_;
  Problems& problems_;
};

}  // namespace

void settle_batch_sizes(Value& settings, Problems& problems) { BatchAutos(settings, problems).settle(); }

BatchSizes solve_batch(const RunSettings& settings, int64_t data_parallel, Problems& problems) {
  return BatchSolver(settings, data_parallel, problems).solve();
}

}  // namespace drivetrain
