#include "train/resume.h"

#include <algorithm>
#include <set>

#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "checkpoint/load_state.h"
#include "checkpoint/retention.h"
#include "formats/state_names.h"
#include "plugin_calls/plugin_call.h"
#include "rendezvous/gather_values.h"
#include "run/run_state.h"
#include "train/ancestry.h"
#include "train/config_changes.h"

namespace drivetrain {
namespace {

constexpr const char* kPassedOver = "\n   it is passed over, as \"damaged_checkpoint\" is \"previous\"";

// A rank that dies ends the wait at once; this is for one that neither reads nor dies.
constexpr double kLoadTimeout = 1800;

std::string listed_tags(const std::vector<StoredTag>& tags) {
  std::string names;
  for (const StoredTag& tag : tags) names += (names.empty() ? "" : ", ") + tag.tag;
  return names;
}

// What a user sees of one checkpoint that cannot be read, and what to take instead: the nearest before it, else those
// behind it. Their bytes are not read, which may take long, so one that is offered may be damaged, too.
[[noreturn]] void offer_others(const Error& e, const CheckpointStore& store, const std::vector<StoredTag>& tags,
                               size_t at, const std::string& output_dir) {
  std::set<std::string> damaged;
  for (const StoreProblem& problem : store.problems())
    if (!problem.left_over) damaged.insert(problem.tag);
  std::vector<StoredTag> newer, older;
  for (size_t i = 0; i < tags.size(); ++i)
    if (i != at && !damaged.count(tags[i].tag)) (i < at ? newer : older).push_back(tags[i]);
  std::string others = "there is no other checkpoint in this folder that can be used";
  if (!newer.empty()) others = "none before it can be used; behind it: " + listed_tags(newer);
  if (!older.empty()) others = "the checkpoint before it is --resume " + older.front().tag;
  throw fail(e.code(), "the checkpoint ", tags[at].tag, " cannot be read: ", e.what(), "\n   ", others,
             "\n   what is damaged, and what is whole: drivetrain checkpoint verify ", output_dir);
}

size_t find_tag(const CheckpointStore& store, const std::vector<StoredTag>& tags, const ResumeOption& option,
                const std::string& output_dir) {
  if (option.mode == ResumeOption::Mode::automatic) return 0;
  for (size_t i = 0; i < tags.size(); ++i)
    if (tags[i].tag == option.tag) return i;
  for (const StoreProblem& problem : store.problems())
    if (problem.tag == option.tag && !problem.left_over)
      throw fail(ErrorCode::checkpoint, "--resume ", shown(option.tag),
                 ": the checkpoint cannot be used: ", problem.text, "\n   others are ", listed_tags(tags),
                 "\n   what is damaged: drivetrain checkpoint verify ", output_dir);
  throw fail(ErrorCode::config, "--resume ", shown(option.tag), ": there is no such checkpoint in ", output_dir,
             "; there are ", listed_tags(tags));
}

// Of a checkpoint that a training run has saved.
const Value* counters_of(const Checkpoint& checkpoint, const std::string& tag) {
  const Value* const counters = checkpoint.facts().find("counters");
  if (counters && counters->is_object()) return counters;
  throw fail(ErrorCode::checkpoint, "the checkpoint ", tag, " holds no counters: it was not saved by a training run",
             "\n   begin a run with its weights in another folder: --set output_dir=FOLDER");
}

void explain(const std::vector<ConfigChange>& changes, const ResumeOption& option, const std::string& tag, Log& log) {
  std::string numbers;
  for (const ConfigChange& change : changes) {
    if (change.effect == ChangeEffect::none)
      log.info("other than at the checkpoint, without effect on the numbers: " + change.text());
    if (change.effect == ChangeEffect::rounding)
      log.warning("other than at the checkpoint, sums are in another order: " + change.text());
    if (change.effect == ChangeEffect::numbers) numbers += "\n   " + change.text();
  }
  if (numbers.empty()) return;
  if (option.given) return log.warning("other than at the checkpoint, the run goes on with other numbers:" + numbers);
  throw fail(ErrorCode::config, "output_dir holds a run with another config (checkpoint ", tag,
             "); going on would change its numbers:", numbers,
             "\n   go on with them: --resume auto; begin anew: --set output_dir=FOLDER");
}

int64_t stored_step(const CheckpointStore& store, const std::string& tag) {
  for (const StoredTag& one : store.tags())
    if (one.tag == tag) return one.step;
  return -1;
}

// One that the run did not have before begins anew.
bool has_state_of(const std::string& owner, const Value& counters) {
  for (const auto& member : counters.members())
    if (member.key.starts_with(owner + "/")) return true;
  return false;
}

// On rank 0: what all ranks have left, in order; on others nothing. Returns when all ranks have loaded their parts: one
// may have much more to read than another, and what follows are calls between the ranks.
std::vector<std::string> used_by_nobody(const std::set<std::string>& mine, Run& run, const RankEnvironment& env) {
  std::vector<std::string> all(mine.begin(), mine.end());
  if (env.world_size == 1) return all;
  const Value value(Value::Array(all.begin(), all.end()));
  for (const Value& rank : gather_values(*run.store, "resume/unused", env, value, kLoadTimeout)) {
    std::set<std::string> its;
    for (const Value& name : rank.items()) its.insert(name.as_string());
    std::erase_if(all, [&](const std::string& name) { return !its.count(name); });
  }
  const char* const kLoaded = "resume/loaded";
  if (env.rank == 0) return run.store->set(kLoaded, ""), all;
  run.store->get(kLoaded, kLoadTimeout);
  return {};
}

// A checkpoint behind the newest that can be used, damaged: nobody goes back further than the user knows. One of
// another name than a run gives is somebody's own.
void check_newer(const CheckpointStore& store, const StoredTag& newest, const std::string& output_dir, bool passes_over,
                 Log& log) {
  for (const StoreProblem& problem : store.problems()) {
    if (problem.left_over || step_of_tag(problem.tag).value_or(-1) <= newest.step) continue;
    const std::string text = concat("the checkpoint ", problem.tag, " cannot be used: ", problem.text);
    if (!passes_over)
      throw fail(ErrorCode::checkpoint, text, "\n   the checkpoint before it is --resume ", newest.tag,
                 "\n   what is damaged: drivetrain checkpoint verify ", output_dir);
    log.warning(concat(text, kPassedOver));
  }
}

// For a run that goes back behind damage: the newest, from `at` on, of which every byte is as it was written.
size_t newest_whole(const CheckpointStore& store, const std::vector<StoredTag>& tags, size_t at, Log& log) {
  for (; at < tags.size(); ++at) {
    std::vector<std::string> problems;
    try {
      problems = store.open(tags[at].tag)->verify();
    } catch (const Error& e) {
      if (e.code() != ErrorCode::checkpoint) throw;
      problems = {first_line(e.what())};
    }
    if (problems.empty()) return at;
    log.warning(concat("the checkpoint ", tags[at].tag, " cannot be used: ", problems.front(), kPassedOver));
  }
  throw fail(ErrorCode::checkpoint, "no checkpoint of this run is whole: ", listed_tags(tags),
             "\n   begin it anew in another folder: --set output_dir=FOLDER");
}

// Of the config, and of the dataset's files.
std::vector<ConfigChange> changes_since(const Checkpoint& checkpoint, const RunNow& now) {
  const Value* const config = checkpoint.facts().find("config");
  const Value* const run = checkpoint.facts().find("run");
  const Value* const data = run ? run->find("data") : nullptr;
  std::vector<ConfigChange> changes =
      config ? config_changes(*config, now.config, now.declared) : std::vector<ConfigChange>();
  for (ConfigChange& change : changes)
    if (now.mixture && change.path == "train_micro_batch_size_per_gpu")
      change.effect = ChangeEffect::numbers,
      change.path += " (a loss that balances experts is one of each micro-batch)";
  if (!data || !data->is_object()) return changes;
  for (ConfigChange& change : data_changes(*data, now.data)) changes.push_back(std::move(change));
  return changes;
}

// Whether going on from a checkpoint computes what its run would have.
bool same_numbers(const Checkpoint& checkpoint, const RunNow& now) {
  const std::vector<ConfigChange> changes = changes_since(checkpoint, now);
  return std::none_of(changes.begin(), changes.end(),
                      [](const ConfigChange& change) { return change.effect == ChangeEffect::numbers; });
}

// The newest, or the one that was asked for. A command that asks for one and is started again, as a batch system does,
// goes on where it stopped. So does one that does not ask, after another that did and has saved nothing since.
size_t find_beginning(const CheckpointStore& store, const std::vector<StoredTag>& tags, const ResumeOption& option,
                      const std::string& output_dir, const RunNow& now, Log& log) {
  const size_t at = find_tag(store, tags, option, output_dir);
  const bool asked = option.mode == ResumeOption::Mode::tag;
  const std::string origin = asked ? option.tag : last_origin(output_dir);
  const size_t last = origin.empty() ? tags.size() : newest_from(store, tags, origin, asked ? kAskedFor : kResumedFrom);
  if (last == tags.size() || last == at) return at;
  if (!asked) {
    log.warning(concat("the last run in this folder went on from ", origin, ", so this one goes on from ",
                       tags[last].tag, " and not from ", tags[at].tag, "; --resume ", tags[at].tag, " does"));
    return last;
  }
  if (!same_numbers(*store.open(tags[last].tag), now)) return at;
  log.warning(concat("a run that went on from ", origin, " has come to ", tags[last].tag,
                     " and goes on there; to begin at ", origin, " again, move ", tags[last].tag, " away"));
  return last;
}

std::string listed(const std::vector<std::string>& names) {
  constexpr size_t kMost = 5;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i) text += (i ? ", " : "") + names[i];
  return names.size() > kMost ? concat(text, " and ", names.size() - kMost, " more") : text;
}

// The run has read these values from its own folder, which has to hold the same.
void take_frozen_base(Run& run, const Checkpoint& checkpoint, const std::string& tag) {
  run.frozen_base = frozen_base_of(checkpoint);
  if (run.frozen_base.params.empty()) return;
  if (run.services->rank == 0)
    check_frozen_base(run.frozen_base, run.weights_from, tag, ", or name their folder: --set model.params.from=FOLDER");
  run.frozen_base.folder = run.weights_from;
  for (const std::string& name : run.frozen_base.params)
    if (!run.read_from_there.count(name))
      throw fail(ErrorCode::checkpoint, "the checkpoint ", tag, " refers to ", run.weights_from, " for ", name,
                 ", which the model does not have\n   use the config of the run that saved it (resolved.json)");
}

}  // namespace

ResumeOption read_resume(const std::string& text) {
  ResumeOption option;
  option.given = !text.empty();
  if (text == "never") option.mode = ResumeOption::Mode::never;
  if (text.empty() || text == "auto" || text == "never") return option;
  option.mode = ResumeOption::Mode::tag, option.tag = text;
  return option;
}

void check_no_tags(const CheckpointStore& store, const std::string& output_dir) {
  const std::vector<StoredTag> tags = store.tags();
  if (tags.empty()) return;
  throw fail(ErrorCode::config, "output_dir ", output_dir,
             " holds no run, and where its checkpoints are to be kept are those of another one: ", tags.front().tag,
             tags.size() > 1 ? concat(" and ", tags.size() - 1, " more") : "",
             "\n   choose another --set output_dir=FOLDER, or another place for checkpoints, or move these away");
}

GoOn choose_tag(const CheckpointStore& store, const std::vector<StoredTag>& tags, const ResumeOption& option,
                const std::string& output_dir, const RunNow& now, bool finished, Log& log) {
  const int64_t train_steps = now.config.find("train_steps")->as_int();
  const Value* const when_damaged = now.config.find("damaged_checkpoint");
  const bool passes_over = when_damaged && when_damaged->is_string() && when_damaged->as_string() == "previous";
  size_t at = find_beginning(store, tags, option, output_dir, now, log);
  if (option.mode == ResumeOption::Mode::automatic) {
    if (passes_over) at = newest_whole(store, tags, at, log);
    check_newer(store, tags[at], output_dir, passes_over, log);
  }
  const StoredTag& found = tags[at];
  std::shared_ptr<const Checkpoint> checkpoint;
  try {
    checkpoint = store.open(found.tag);
  } catch (const Error& e) {
    offer_others(e, store, tags, at, output_dir);
  }
  counters_of(*checkpoint, found.tag);
  // A run that was killed behind its last step has its final weights still to write.
  if (found.step > train_steps || (found.step == train_steps && finished))
    throw fail(ErrorCode::config, "output_dir ", output_dir, " holds a run that is done: checkpoint ", found.tag,
               " is at step ", found.step, " of ", train_steps,
               "\n   train longer with a larger train_steps, or choose another --set output_dir=FOLDER");
  explain(changes_since(*checkpoint, now), option, found.tag, log);
  GoOn on{found.tag, found.run_id, tags_in(*checkpoint, kResumedFrom), tags_in(*checkpoint, kAskedFor), {}};
  on.resumed_from.push_back(found.tag);
  if (option.mode == ResumeOption::Mode::tag) on.asked_for.push_back(option.tag);
  for (const StoredTag& tag : tags)
    if (tag.step > found.step && !is_of_another_run(tag, found.run_id)) on.left_behind.push_back(tag.tag);
  if (!on.left_behind.empty())
    log.warning(concat("the run goes on from ", found.tag,
                       ", and steps behind it are done again: ", listed(on.left_behind),
                       on.left_behind.size() == 1 ? " is" : " are", " removed when the next checkpoint is written"));
  return on;
}

std::string resume_from(const std::string& tag, Run& run, Trainer& trainer, const RankEnvironment& env) {
  const std::string id = run.plan.id_of(CheckpointStore::kKind);
  const CheckpointStore& store = *run.plugins.checkpoint_store;
  const auto checkpoint = plugin_call({id, "open"}, [&] { return store.open(tag); });
  const Value* const counters = counters_of(*checkpoint, tag);
  LoadState load(*checkpoint, *counters, *run.mesh);
  take_frozen_base(run, *checkpoint, tag);
  try {
    for (const StateOwner& owner : run_state(run, trainer))
      if (!owner.may_be_new || has_state_of(owner.name, *counters)) owner.visit(load);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::checkpoint) throw;
    const std::vector<StoredTag> tags = store.tags();
    const std::string& folder = run.plan.settings.output_dir;
    offer_others(e, store, tags, find_tag(store, tags, {ResumeOption::Mode::tag, true, tag}, folder), folder);
  }
  load.throw_if_incomplete();
  if (const int64_t step = stored_step(store, tag); trainer.next_step() != step + 1)
    throw fail(ErrorCode::checkpoint, "the checkpoint ", tag, " is of step ", step, ", and its counter says that step ",
               trainer.next_step(), " is next: it was edited\n   go on from another checkpoint: --resume TAG");
  const std::vector<std::string> unused = used_by_nobody(load.unused(), run, env);
  for (const std::string& name : unused)
    if (name.starts_with(kModelNames))
      throw fail(
          ErrorCode::checkpoint, "the checkpoint ", tag, " holds weights that the model does not have: ", name,
          "\n   it was saved by a run with another model: use the config of that run (resolved.json), or begin a ",
          "new run in another output_dir");
  spread_values(run);
  return unused.empty() ? "" : concat("the checkpoint holds state that this run has no use for: ", listed(unused));
}

}  // namespace drivetrain
