// The warmup phase that DeepSpeed's warmup schedules share. Pure functions. Thread: any.
//
// Source: DeepSpeed runtime/lr_schedules.py. Its index t is -1 when the optimizer is built and k - 1 after the k-th
// update, so the first update uses t = -1 and update k uses t = k - 2; `schedule_index` returns this t. Note: with
// warmup_min_lr 0 the first two updates change nothing.
#pragma once

#include <cstdint>
#include <string>

#include <drivetrain/log.h>
#include <drivetrain/lr_schedule.h>
#include <drivetrain/options.h>

namespace drivetrain {

struct Warmup {
  int64_t warmup_num_steps = 1000;
  std::string warmup_type = "log";
  int64_t last_batch_iteration = -1;

  // DeepSpeed's max(2, warmup_num_steps).
  int64_t length() const { return warmup_num_steps < 2 ? 2 : warmup_num_steps; }
};

inline int64_t schedule_index(const Progress& progress) { return progress.updates - 1; }

// The factor of update t, from 0 to 1: ln(t + 1) / ln(length) or t / length; 0 for t = -1; 1 if t >= length.
double warmup_factor(const Warmup& warmup, int64_t t);

// Warns if the schedule ends before its warm-up does. `plugin`: "lr_schedule/mine".
void warn_if_never_full(const Warmup& warmup, int64_t total_num_steps, const char* plugin, Log& log);

// An option table with the three options above, for an options struct that derives from Warmup.
template <class Options>
TableBuilder<Options> warmup_table() {
  TableBuilder<Options> t;
  t.template field<int64_t>("warmup_num_steps", &Options::warmup_num_steps,
                            "updates until the full rate is reached (at least 2)")
      .at_least(1)
      .automatic("warmup_steps 0 of Hugging Face's Trainer, which are 2 here", Value(2));
  t.template field<std::string>("warmup_type", &Options::warmup_type, "shape of the rise").one_of({"log", "linear"});
  t.template field<int64_t>("last_batch_iteration", &Options::last_batch_iteration,
                            "accepted for DeepSpeed's sake: only -1, a resumed run goes on by itself")
      .range(-1, -1);
  return t;
}

}  // namespace drivetrain
