#include <drivetrain/testkit/lr_schedule/suite.h>

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include <drivetrain/testkit/kit/host.h>
#include <drivetrain/testkit/kit/keeper.h>

namespace drivetrain::test {
namespace {

constexpr int64_t kUpdates = 200;

// Two groups of parameters, which a schedule is asked for in turn.
constexpr Hyper kGroups[] = {{0.002, 0.25, 0.75}, {0.01, 0, 0.5}};

// Of a run whose length is known, or is not (0).
Progress progress_of(int64_t update, int64_t train_steps = 0) {
  Progress progress;
  progress.updates = update, progress.samples = 8 * update, progress.tokens = 512 * update;
  progress.train_steps = train_steps;
  return progress;
}

bool shows_state(LrSchedule& schedule) {
  Keeper keeper;
  schedule.state(keeper);
  return !keeper.empty();
}

// A schedule may be asked for any step in any order, as after a restart, and for every group in each.
void check_is_a_function_of_progress(LrSchedule& schedule) {
  if (shows_state(schedule)) return left_out("any order of updates", "LrSchedule::state shows that it keeps something");
  for (const int64_t train_steps : {int64_t{0}, kUpdates}) {
    std::vector<Hyper> forward;
    for (int64_t u = 0; u < kUpdates; ++u) forward.push_back(schedule.at(progress_of(u, train_steps), kGroups[0]));
    for (int64_t u = kUpdates - 1; u >= 0; --u) {
      schedule.at(progress_of(u, train_steps), kGroups[1]);
      const Hyper again = schedule.at(progress_of(u, train_steps), kGroups[0]);
      const Hyper& before = forward[static_cast<size_t>(u)];
      ASSERT_EQ(again.lr, before.lr) << "update " << u << ", asked again";
      ASSERT_EQ(again.weight_decay, before.weight_decay) << "update " << u << ", asked again";
      ASSERT_EQ(again.momentum, before.momentum) << "update " << u << ", asked again";
    }
  }
}

void check_rates_are_numbers(LrSchedule& schedule) {
  for (const int64_t train_steps : {int64_t{0}, kUpdates})
    for (int64_t u = 0; u < kUpdates; ++u) {
      const double rate = schedule.at(progress_of(u, train_steps), kGroups[0]).lr;
      ASSERT_TRUE(std::isfinite(rate) && rate >= 0) << "update " << u << " has the rate " << rate;
    }
}

// A schedule of the rate alone leaves the rest as it is, in every step alike.
void check_rest_is_a_function_of_progress(LrSchedule& schedule) {
  const bool again_is_equal = !shows_state(schedule);
  for (const int64_t u : {int64_t{0}, int64_t{17}, kUpdates}) {
    const Hyper once = schedule.at(progress_of(u), kGroups[0]), again = schedule.at(progress_of(u), kGroups[0]);
    for (const double value : {once.weight_decay, once.momentum})
      EXPECT_TRUE(std::isfinite(value) && value >= 0) << value;
    if (!again_is_equal) continue;
    EXPECT_EQ(once.weight_decay, again.weight_decay);
    EXPECT_EQ(once.momentum, again.momentum);
  }
}

// Of one step, as a run asks: once per group.
std::string rates_of_step(const LrSchedule& schedule, int64_t update) {
  std::string text;
  for (const Hyper& group : kGroups) {
    const Hyper hyper = schedule.at(progress_of(update, kUpdates), group);
    for (const double value : {hyper.lr, hyper.weight_decay, hyper.momentum}) text += Value(value).to_json() + " ";
  }
  return text;
}

using RatesMaker = std::function<std::shared_ptr<LrSchedule>()>;
void check_rates_survive_a_stop(const RatesMaker& make) {
  for (const int64_t stop : {int64_t{0}, int64_t{1}, int64_t{17}, kUpdates - 1}) {
    const auto whole = make(), before = make(), after = make();
    for (int64_t u = 0; u < stop; ++u) rates_of_step(*whole, u), rates_of_step(*before, u);
    Keeper keeper;
    before->state(keeper);
    keeper.loading = true;
    after->state(keeper);
    EXPECT_EQ(keeper.loaded, keeper.names) << "names that are loaded are those that were saved, in their order";
    for (int64_t u = stop; u < kUpdates; ++u)
      ASSERT_EQ(rates_of_step(*after, u), rates_of_step(*whole, u)) << "update " << u << ", stopped before " << stop;
  }
}

using ScheduleOfRatesCheck = void (*)(LrSchedule&);
constexpr std::pair<const char*, ScheduleOfRatesCheck> kLrScheduleChecks[] = {
    {"depends_on_nothing_but_progress", check_is_a_function_of_progress},
    {"rates_are_finite_and_not_negative", check_rates_are_numbers},
    {"weight_decay_and_momentum_stay_numbers", check_rest_is_a_function_of_progress},
};

}  // namespace

double rate_at(const LrSchedule& schedule, int64_t update, const Hyper& base) {
  Progress progress;
  progress.updates = update;
  return schedule.at(progress, base).lr;
}

Suite lr_schedule_suite() {
  const auto maker = [](const Subject& subject, const Host& host) -> RatesMaker {
    return [&] {
      return installed_plugins().make<LrSchedule>(LrSchedule::kKind, subject.name, subject.options, host.services);
    };
  };
  Suite suite;
  for (const auto& [name, check] : kLrScheduleChecks)
    suite.push_back({name, [maker, check = check](const Subject& subject) {
                       const Host host;
                       check(*maker(subject, host)());
                     }});
  suite.push_back({"state_survives_a_stop", [maker](const Subject& subject) {
                     const Host host;
                     check_rates_survive_a_stop(maker(subject, host));
                   }});
  return suite;
}

void run_lr_schedule_suite(LrSchedule& schedule) {
  for (const auto& [name, check] : kLrScheduleChecks) {
    SCOPED_TRACE(name);
    check(schedule);
  }
}

}  // namespace drivetrain::test
