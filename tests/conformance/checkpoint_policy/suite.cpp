#include <drivetrain/testkit/checkpoint_policy/suite.h>

#include <gtest/gtest.h>

#include <csignal>
#include <limits>

#include <drivetrain/checkpoint_policy.h>

#include <drivetrain/testkit/kit/host.h>
#include <drivetrain/testkit/kit/keeper.h>

namespace drivetrain::test {
namespace {

constexpr int64_t kPolicySteps = 60;

// The policy of one rank.
struct RankPolicy {
  explicit RankPolicy(const Subject& subject, int64_t rank = 0, int64_t ranks = 1) {
    host.services.rank = host.services.local_rank = rank;
    host.services.world_size = host.services.local_size = ranks;
    policy = installed_plugins().make<CheckpointPolicy>(CheckpointPolicy::kKind, subject.name, subject.options,
                                                        host.services);
  }
  CheckpointPolicy* operator->() const { return policy.get(); }
  Host host;
  std::shared_ptr<CheckpointPolicy> policy;
};

// Falls, with a few steps back. `salt`: of the figure.
double uneven_figure(int64_t step, int64_t salt) {
  return 4.0 / static_cast<double>(step + 3) + 0.03 * static_cast<double>((step * 7 + salt) % 11);
}

Value figures_of(int64_t step) {
  Value figures = Value::Object{{"loss", uneven_figure(step, 0)},
                                {"grad_norm", uneven_figure(step, 4)},
                                {"lr", 1e-3 / static_cast<double>(step)},
                                {"tokens", 512 * step}};
  if (step % 4 == 0) figures.set("valid_loss", uneven_figure(step, 7));
  return figures;
}

// A run's moments. The clock is that of a start, so it says nothing where a restart is to be compared.
enum class Clock { runs, stands };
enum class Ending { done, signal };
std::vector<SaveMoment> moments(Clock clock = Clock::runs, Ending ending = Ending::done) {
  std::vector<SaveMoment> list;
  for (int64_t step = 1; step <= kPolicySteps; ++step) {
    SaveMoment moment;
    moment.step = step, moment.figures = figures_of(step), moment.busy = step % 6 == 3;
    if (clock == Clock::runs) moment.seconds = 7.5 * static_cast<double>(step);
    list.push_back(moment);
  }
  list.back().last = true, list.back().done = ending == Ending::done;
  if (ending == Ending::signal) list.back().signal = SIGTERM;
  return list;
}

StoredTag tag_of(const SaveMoment& moment) {
  StoredTag tag;
  tag.tag = "step-" + std::to_string(moment.step), tag.step = moment.step;
  tag.saved_at = 1.7e9 + 7.5 * static_cast<double>(moment.step), tag.bytes = 1000;
  tag.figures = moment.figures;
  return tag;
}

// Newest first; every `stride`th moment.
std::vector<StoredTag> tags_of(const std::vector<SaveMoment>& list, int64_t stride = 1) {
  std::vector<StoredTag> tags;
  for (const SaveMoment& moment : list)
    if (moment.step % stride == 0) tags.insert(tags.begin(), tag_of(moment));
  return tags;
}

std::string due_steps(const std::vector<bool>& due) {
  std::string steps;
  for (size_t i = 0; i < due.size(); ++i)
    if (due[i]) steps += concat(steps.empty() ? "" : " ", i + 1);
  return steps;
}

std::vector<bool> ask(CheckpointPolicy& policy, const std::vector<SaveMoment>& list) {
  std::vector<bool> due;
  for (const SaveMoment& moment : list) due.push_back(policy.due(moment));
  return due;
}

void check_same_on_all_ranks(const Subject& subject) {
  for (const Ending ending : {Ending::done, Ending::signal}) {
    const auto list = moments(Clock::runs, ending);
    const RankPolicy first(subject, 0, 3);
    const std::string wanted = due_steps(ask(*first.policy, list));
    for (const int64_t rank : {1, 2})
      EXPECT_EQ(due_steps(ask(*RankPolicy(subject, rank, 3).policy, list)), wanted) << "due on rank " << rank;
    EXPECT_EQ(due_steps(ask(*RankPolicy(subject).policy, list)), wanted) << "due in a run of one rank";
  }
}

// Only rank 0 is asked what to keep, and only after a save.
void check_keep_leaves_due(const Subject& subject) {
  const auto list = moments();
  const RankPolicy plain(subject, 1, 2), asked(subject, 0, 2);
  std::vector<bool> due;
  for (size_t i = 0; i < list.size(); ++i) {
    due.push_back(asked->due(list[i]));
    const std::vector<SaveMoment> so_far(list.begin(), list.begin() + static_cast<ptrdiff_t>(i) + 1);
    if (i % 2 == 0) asked->keep(tags_of(so_far, 3));
  }
  EXPECT_EQ(due_steps(due), due_steps(ask(*plain.policy, list))) << "due where keep was called between the steps";
}

void check_keep_answers_for_every_tag(const Subject& subject) {
  const auto list = moments();
  const RankPolicy policy(subject);
  for (const bool after_steps : {false, true}) {
    if (after_steps) ask(*policy.policy, list);
    for (const int64_t stride : {kPolicySteps + 1, kPolicySteps, int64_t{30}, int64_t{7}, int64_t{1}}) {
      const auto tags = tags_of(list, stride);
      EXPECT_EQ(policy->keep(tags).size(), tags.size()) << "answers for " << tags.size() << " tags";
    }
    std::vector<StoredTag> bare = tags_of(list, 10);
    for (StoredTag& tag : bare) tag.figures = Value::object();
    EXPECT_EQ(policy->keep(bare).size(), bare.size()) << "answers for tags without figures";
    for (StoredTag& tag : bare) tag.figures = Value();
    EXPECT_EQ(policy->keep(bare).size(), bare.size()) << "answers for tags whose figures are null";
  }
}

// A restart may have come between a save and the question, or the question may come again.
void check_keep_depends_on_tags(const Subject& subject) {
  const auto list = moments();
  const RankPolicy policy(subject), other(subject);
  for (const int64_t stride : {1, 7, 30}) {
    const auto tags = tags_of(list, stride);
    const std::vector<bool> first = policy->keep(tags);
    EXPECT_EQ(policy->keep(tags), first) << "keep of " << tags.size() << " tags, asked again";
    other->keep(tags_of(list, 2));
    EXPECT_EQ(other->keep(tags), first) << "keep of " << tags.size() << " tags, asked after other tags";
  }
}

void check_policy_survives_a_stop(const Subject& subject) {
  const auto list = moments(Clock::stands);
  const std::vector<bool> whole = ask(*RankPolicy(subject).policy, list);
  for (const ptrdiff_t stop : {0, 1, 2, 3, 8, 13, 36, 59}) {
    const RankPolicy before(subject);
    std::vector<bool> due = ask(*before.policy, {list.begin(), list.begin() + stop});
    Keeper keeper, again;
    before->state(keeper);
    before->state(again);
    EXPECT_EQ(again.names, keeper.names) << "state visited a second time";
    EXPECT_TRUE(again.holds_the_same_as(keeper)) << "state changes when it is visited";
    const RankPolicy after(subject);
    keeper.loading = true;
    after->state(keeper);
    EXPECT_EQ(keeper.loaded, keeper.names) << "names that are loaded are those that were saved, in their order";
    const std::vector<bool> rest = ask(*after.policy, {list.begin() + stop, list.end()});
    due.insert(due.end(), rest.begin(), rest.end());
    EXPECT_EQ(due_steps(due), due_steps(whole)) << "due in a run that was stopped after step " << stop;
    const auto tags = tags_of(list, 3);
    EXPECT_EQ(after->keep(tags), before->keep(tags)) << "keep in a run that was stopped after step " << stop;
  }
}

// Steps without a figure, and figures that are no finite numbers: the same as steps that do not have them.
void check_odd_figures(const Subject& subject) {
  auto without = moments(Clock::stands);
  for (const int64_t step : {1, 4, 5, 16, 37}) without[static_cast<size_t>(step - 1)].figures = Value::object();
  const std::string wanted = due_steps(ask(*RankPolicy(subject).policy, without));
  for (const Value& odd :
       {Value(), Value(std::numeric_limits<double>::quiet_NaN()), Value(std::numeric_limits<double>::infinity()),
        Value(-std::numeric_limits<double>::infinity())}) {
    auto list = without;
    const Value names = figures_of(4);
    for (SaveMoment& moment : list)
      if (moment.figures.members().empty())
        for (const Value::Member& figure : names.members()) moment.figures.set(figure.key, odd);
    const RankPolicy policy(subject);
    EXPECT_EQ(due_steps(ask(*policy.policy, list)), wanted) << "due where some figures are " << odd.to_json();
    const auto tags = tags_of(list);
    EXPECT_EQ(policy->keep(tags), RankPolicy(subject)->keep(tags_of(without)))
        << "keep where some figures are " << odd.to_json();
  }
}

// What is no value of an option is refused with its name before the run starts.
void check_wrong_options(const Subject& subject) {
  const auto refusal = [&](const std::string& key, const Value& value) {
    Value options = subject.options;
    options.set(key, value);
    const Host host;
    return error_of([&] {
      installed_plugins().make<CheckpointPolicy>(CheckpointPolicy::kKind, subject.name, options, host.services);
    });
  };
  const auto expect_refused = [&](const std::string& key, const Value& value) {
    EXPECT_NE(refusal(key, value).find(key), std::string::npos)
        << "option " << key << " = " << value.to_json() << " is not refused by its name: " << refusal(key, value);
  };
  const std::string unknown = "no_option_of_any_policy";
  expect_refused(unknown, 1);
  for (const OptionField& field : installed_plugins().options(CheckpointPolicy::kKind, subject.name).fields()) {
    expect_refused(field.name, parse_json(R"([{"no": ["value"]}])", "suite"));
    if (field.minimum) expect_refused(field.name, *field.minimum - 1);
    if (field.maximum) expect_refused(field.name, *field.maximum + 1);
    if (!field.choices.empty()) expect_refused(field.name, "none of the choices");
  }
}

}  // namespace

Suite checkpoint_policy_suite() {
  return {
      {"due_is_the_same_on_all_ranks", check_same_on_all_ranks},
      {"keep_changes_nothing_of_due", check_keep_leaves_due},
      {"keep_answers_once_for_every_tag", check_keep_answers_for_every_tag},
      {"keep_depends_on_the_tags_alone", check_keep_depends_on_tags},
      {"state_survives_a_stop", check_policy_survives_a_stop},
      {"figures_that_are_no_numbers_are_none", check_odd_figures},
      {"wrong_options_are_refused_by_their_names", check_wrong_options},
  };
}

}  // namespace drivetrain::test
