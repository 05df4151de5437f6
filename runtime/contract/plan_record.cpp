#include <drivetrain/plan_record.h>

#include <algorithm>

#include <drivetrain/error.h>

namespace drivetrain {

PlanRecord::PlanRecord(ModelFacts model, RunFacts run)
    : model_(std::move(model)), run_(std::move(run)), heads_(run_.heads_per_rank), groups_(run_.groups_per_rank) {}

// Heads are divided from the outside in: a plugin sees what those before it left.
void PlanRecord::set_plugin(const std::string& plugin) {
  speaker_ = plugin;
  int64_t ranks = 1;
  for (const Share& share : shares_)
    if (!share.layers && share.by != plugin) ranks *= share.ranks;
  if (heads_.known()) run_.heads_per_rank = std::max<int64_t>(1, heads_ / ranks);
  if (groups_.known()) run_.groups_per_rank = std::max<int64_t>(1, groups_ / ranks);
}

void PlanRecord::claim_axis(const std::string& axis, int64_t size, Reads reads, int place) {
  claims_.push_back({axis, size, reads, place, speaker_});
}

void PlanRecord::need(const std::string& ability, const std::string& why) {
  Need need{ability, why, speaker_};
  for (const Need& taken : taken_)
    if (taken.ability == ability && taken.by != speaker_) need.taken_by = taken.by, need.taken_why = taken.why;
  needs_.push_back(std::move(need));
}

void PlanRecord::take_away(const std::string& ability, const std::string& why) {
  taken_.push_back({ability, why, speaker_});
}

void PlanRecord::no_effect(const std::string& key, const std::string& why) {
  const std::string text = concat(key, " changes nothing: ", why);
  const auto same = [&](const Note& note) { return note.by == speaker_ && note.text == text; };
  if (std::none_of(no_effects_.begin(), no_effects_.end(), same)) no_effects_.push_back({speaker_, text});
}

void PlanRecord::memory(MemoryClass memory_class, const std::string& what, double bytes) {
  memories_.push_back({speaker_, what, bytes, memory_class});
}

void PlanRecord::host_memory(MemoryClass memory_class, const std::string& what, double bytes) {
  memories_.push_back({speaker_, what, bytes, memory_class, /*on_host=*/true});
}

void PlanRecord::traffic(const std::string& axis, const std::string& what, double bytes) {
  traffics_.push_back({speaker_, axis, what, bytes});
}

PlanRecord::Update PlanRecord::update() const {
  return update_.value_or(
      Update{static_cast<double>(model_.parameters) * run_.rank_trained.value_or(run_.rank_share.value_or(1))});
}

}  // namespace drivetrain
