#include "checkpoint/saver.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <utility>

#include <drivetrain/toolkit/seconds_since.h>
#include <drivetrain/toolkit/text.h>

#include "checkpoint/agreement.h"
#include "checkpoint/held_state.h"
#include "checkpoint/writers.h"
#include "plugin_calls/plugin_call.h"
#include "rendezvous/gather_values.h"

namespace drivetrain {
namespace {

// A rank that dies ends the wait at once; this is for one that neither writes nor dies.
constexpr double kSaveTimeout = 1800;

using Clock = std::chrono::steady_clock;

// Beyond as many as a number has bits, the last one stands for the rest.
uint64_t policy_bit(size_t policy) { return uint64_t{1} << std::min<size_t>(policy, 50); }

std::string key_of(const std::vector<HeldPart>& parts) {
  std::string key;
  for (const HeldPart& part : parts) key += part.key() + "\n";
  return key;
}

}  // namespace

std::string tag_of_step(int64_t step) { return formatted("step-%08lld", static_cast<long long>(step)); }

std::optional<int64_t> step_of_tag(const std::string& tag) {
  const size_t digits = tag.rfind('-') + 1;
  int64_t step = -1;
  std::from_chars(tag.data() + std::min(digits, tag.size()), tag.data() + tag.size(), step);
  return step >= 0 && tag == tag_of_step(step) ? std::optional(step) : std::nullopt;
}

struct Saver::Save {
  Snapshot snapshot;
  Value facts;
  Value common_counters;            // those that all ranks have to have alike
  std::vector<HeldPart> compared;   // with the copies of other ranks, before the next update
  Value digests = Value::array();   // of those
  uint64_t bytes = 0;               // of this rank
  double stall_s = 0, write_s = 0;  // training stood still; from the first byte copied to the commit
  std::string problem;              // empty: complete on all ranks
  bool ranks_differ = false;        // it is one of what they hold, and not of the store
  ErrorCode code = ErrorCode::io;
};

Saver::Saver(SaverParts parts)
    : parts_(std::move(parts)),
      retention_({.store = parts_.store,
                  .store_id = parts_.store_id,
                  .policies = parts_.policies,
                  .log = parts_.log,
                  .run_id = parts_.run_id,
                  .left_behind = parts_.left_behind,
                  .check_place = parts_.check_place}) {}

Saver::~Saver() {
  if (thread_.joinable()) thread_.join();
}

void Saver::prepare() {
  const HeldState held(parts_.mesh, parts_.state);
  choose(held.parts(), "checkpoint/");
}

uint64_t Saver::due(const StepResult& result, const Value& figures, bool last) {
  SaveMoment moment;
  moment.step = result.step, moment.last = last, moment.done = last && result.step >= parts_.train_steps;
  moment.signal = result.signal, moment.seconds = result.seconds, moment.busy = result.beside == Beside::busy;
  moment.figures = figures;
  uint64_t due = 0;
  for (size_t i = 0; i < parts_.policies.size(); ++i) {
    const NamedPolicy& p = parts_.policies[i];
    if (plugin_call({p.id, "due"}, [&] { return p.policy->due(moment); })) due |= policy_bit(i);
  }
  return due;
}

std::string Saver::policies_text(uint64_t policies) const {
  std::string text;
  for (size_t i = 0; i < parts_.policies.size(); ++i)
    if (policies & policy_bit(i)) text += (text.empty() ? "" : ", ") + parts_.policies[i].id;
  return text;
}

std::string Saver::being_written() const { return beside_.load() == Beside::busy ? save_->snapshot.tag : ""; }

bool Saver::wait_until_written(double seconds) {
  std::unique_lock lock(mutex_);
  return written_.wait_for(lock, std::chrono::duration<double>(seconds),
                           [&] { return beside_.load() != Beside::busy; });
}

Beside Saver::beside() { return beside_.load(); }

void Saver::before_update() {
  if (!save_) return;
  const auto start = Clock::now();
  copies_.wait();
  save_->stall_s += seconds_since(start);
}

// Every rank acts on the outcome of a save after a step in which all were done with it, or one of them failed.
void Saver::after_step(const StepResult& result, const Value& figures, bool save, bool last) {
  if (!settled_ && !result.skipped.value_or(false)) settle();
  if (save_ && result.beside != Beside::busy) join();
  if (save) begin(result.step, figures);
  if (last) finish();
}

void Saver::begin(int64_t step, const Value& figures) {
  if (save_) {
    const auto start = Clock::now();
    const std::string before = save_->snapshot.tag;
    join();
    if (const double waited = seconds_since(start); waited > 0.01 && parts_.environment.rank == 0)
      parts_.log.warning(concat("step ", step, " waited ", formatted("%.2f", waited), " s until the checkpoint ",
                                before, " was written; save less often, or use a faster disk"));
  }
  if (parts_.check_place) parts_.check_place();
  save_ = snapshot(step, figures);
  if (parts_.store.asynchronous()) return write_beside_training();
  const auto start = Clock::now();
  retention_.wait();
  write(*save_);
  save_->stall_s += seconds_since(start);
  join();
}

void Saver::write_beside_training() {
  beside_ = Beside::busy;
  thread_ = std::thread([this, rank = work_rank()] {
    work_rank() = rank;
    compare(*save_);
    copies_.copy_rest();
    lower_priority();
    retention_.wait();
    write(*save_);
  });
}

std::unique_ptr<Saver::Save> Saver::snapshot(int64_t step, const Value& figures) {
  const auto start = Clock::now();
  const HeldState held(parts_.mesh, parts_.state);
  if (!writes_ || key_of(held.parts()) != writes_key_) {
    if (saves_ > 0)
      throw fail(ErrorCode::plugin,
                 "the state that this rank holds has other parts than at the first save; a plugin's "
                 "`state` visits other tensors, or other layouts, than before");
    choose(held.parts(), "checkpoint/of the first save/");
  }
  ++saves_;
  auto save = std::make_unique<Save>();
  save->snapshot.tag = tag_of_step(step), save->snapshot.step = step;
  save->snapshot.rank = parts_.environment.rank, save->snapshot.world_size = parts_.environment.world_size;
  save->snapshot.slices = copies_.begin(held.parts(), *writes_, parts_.store.asynchronous());
  for (const StateSlice& slice : save->snapshot.slices) save->bytes += slice.data.nbytes();
  if (parts_.environment.world_size > 1) save->compared = held.parts();
  const bool now =
      std::any_of(held.parts().begin(), held.parts().end(), [](const HeldPart& p) { return !p.view.is_cpu(); });
  if (now || !parts_.store.asynchronous()) compare(*save);
  save->facts = parts_.facts;
  save->facts.set("counters", held.counters());
  save->common_counters = held.common_counters();
  save->facts.set("figures", figures);
  save->stall_s = seconds_since(start);
  return save;
}

// A device's values are read by the thread that gives it work, the host's beside training where they may be.
void Saver::compare(Save& save) {
  if (save.compared.empty()) return;
  save.digests = digests_of(save.compared);
  save.compared.clear();
}

// Who writes what is decided before the first step, and again where an update has made more state.
void Saver::choose(const std::vector<HeldPart>& parts, const std::string& round) {
  writes_ = choose_writers(parts, parts_.exchange, parts_.environment, kSaveTimeout, round);
  writes_key_ = key_of(parts);
}

// The first update may have made more state, on some ranks and not on others: all ask each other, so that at the first
// save none waits alone for ranks to which nothing has changed.
void Saver::settle() {
  const HeldState held(parts_.mesh, parts_.state);
  settled_ = true;
  const std::string round = "checkpoint/after the first update/";
  const bool other = !writes_ || key_of(held.parts()) != writes_key_;
  if (any_of_ranks(parts_.exchange, round + "other", parts_.environment, other, kSaveTimeout))
    choose(held.parts(), round);
}

// A place that is another one by now explains whatever failed in it.
std::string Saver::reason_of(const Error& failure) const {
  try {
    if (parts_.check_place) parts_.check_place();
  } catch (const Error& moved) {
    return moved.what();
  }
  return failure.what();
}

// On the save's thread, or on the main thread.
void Saver::write(Save& save) noexcept {
  const auto start = Clock::now();
  Value mine = held_alike(std::move(save.common_counters), std::move(save.digests));
  try {
    mine.set("part", plugin_call({parts_.store_id, "write"}, [&] { return parts_.store.write(save.snapshot); }));
  } catch (const Error& e) {
    mine.set("error", reason_of(e)), mine.set("code", static_cast<int64_t>(e.code()));
  } catch (const std::exception& e) {
    mine.set("error", e.what()), mine.set("code", static_cast<int64_t>(ErrorCode::internal));
  }
  try {
    save.snapshot.slices.clear();
    save.problem = agree(save, mine);
  } catch (const Error& e) {
    save.problem = e.what(), save.code = e.code();
  } catch (const std::exception& e) {
    save.problem = e.what(), save.code = ErrorCode::internal;
  }
  save.write_s = seconds_since(start);
  const std::lock_guard lock(mutex_);
  beside_ = save.problem.empty() ? Beside::nothing : Beside::failed;
  written_.notify_all();
}

// Rank 0 commits what all have written, or discards it, and tells the others. Returns what failed, or "".
std::string Saver::agree(Save& save, const Value& mine) {
  const std::string key = "checkpoint/" + save.snapshot.tag, answer_key = key + "/done";
  const RankEnvironment& env = parts_.environment;
  Value answer = Value::object();
  if (env.rank != 0) {
    gather_values(parts_.exchange, key, env, mine, kSaveTimeout);
    answer = parse_json(parts_.exchange.get(answer_key, kSaveTimeout), answer_key);
  } else {
    const std::vector<Value> all = gather_values(parts_.exchange, key, env, mine, kSaveTimeout);
    std::vector<Value> written;
    for (size_t rank = 0; rank < all.size(); ++rank) {
      if (rank > 0) parts_.exchange.set(concat(key, "/", rank), "");  // read by nobody else; saves are many
      if (const Value* part = all[rank].find("part")) written.push_back(*part);
      if (const Value* error = all[rank].find("error"); error && !answer.find("error"))
        answer.set("error", concat("rank ", rank, ": ", error->as_string())),
            answer.set("code", *all[rank].find("code"));
    }
    std::string what = differing_numbers(all);
    if (what.empty()) what = differing_copies(all);
    if (!what.empty())
      answer =
          Value::Object{{"error", what}, {"code", static_cast<int64_t>(ErrorCode::plugin)}, {"ranks_differ", true}};
    try {
      if (!answer.find("error")) {
        if (parts_.check_place) parts_.check_place();
        retention_.remove_left_behind();
        plugin_call({parts_.store_id, "commit"},
                    [&] { parts_.store.commit(save.snapshot.tag, save.snapshot.step, save.facts, written); });
      }
    } catch (const Error& e) {
      answer.set("error", reason_of(e)), answer.set("code", static_cast<int64_t>(e.code()));
    }
    if (answer.find("error"))
      parts_.store.discard(save.snapshot.tag);
    else if (parts_.on_commit)
      parts_.on_commit(save.snapshot.tag);
    if (env.world_size > 1) parts_.exchange.set(answer_key, answer.to_json());
  }
  const Value* error = answer.find("error");
  if (!error) return {};
  save.code = static_cast<ErrorCode>(answer.find("code")->as_int());
  save.ranks_differ = answer.find("ranks_differ") != nullptr;
  return error->as_string();
}

void Saver::join() {
  if (thread_.joinable()) thread_.join();
  if (!save_) return;
  const std::unique_ptr<Save> save = std::move(save_);
  beside_ = Beside::nothing;
  const bool speaks = parts_.environment.rank == 0;
  if (!save->problem.empty()) {
    const std::string text = concat("the checkpoint ", save->snapshot.tag, " is not saved: ", save->problem);
    if (save->ranks_differ ||
        plugin_call({parts_.store_id, "failure_ends_run"}, [&] { return parts_.store.failure_ends_run(); }))
      throw Error(save->code, text);
    if (speaks) parts_.log.warning(text + "\n   training goes on without it");
    return;
  }
  last_tag_ = save->snapshot.tag, last_step_ = save->snapshot.step;
  if (!speaks) return;
  parts_.log.info(concat("checkpoint ", last_tag_, ": ", formatted("%.1f", static_cast<double>(save->bytes) / 1e6),
                         " MB by rank 0, training stood still for ", formatted("%.3f", save->stall_s),
                         " s, written in ", formatted("%.3f", save->write_s), " s"));
  retention_.apply();
}

void Saver::finish() {
  if (save_) join();
  retention_.wait();
}

}  // namespace drivetrain
