#include <drivetrain/plan_context.h>

#include <algorithm>

#include <drivetrain/error.h>

namespace drivetrain {

void PlanContext::claim_axis(const std::string& axis, int64_t size, bool joins_gradients, int place) {
  claims_.push_back({axis, size, joins_gradients, place, speaker_});
}
void PlanContext::offer(const std::string& ability) { offers_.push_back({speaker_, ability}); }
void PlanContext::need(const std::string& ability, const std::string& why) {
  needs_.push_back({ability, why, speaker_});
}
void PlanContext::refuse(const std::string& problem) { refusals_.push_back({speaker_, problem}); }
void PlanContext::cost(const std::string& line) { costs_.push_back({speaker_, line}); }
void PlanContext::capturable() { capturables_.push_back(speaker_); }
void PlanContext::no_effect(const std::string& key, const std::string& why) {
  const std::string text = concat(key, " changes nothing: ", why);
  const auto same = [&](const Note& note) { return note.by == speaker_ && note.text == text; };
  if (std::none_of(no_effects_.begin(), no_effects_.end(), same)) no_effects_.push_back({speaker_, text});
}
void PlanContext::memory(MemoryClass memory_class, const std::string& what, double bytes) {
  memories_.push_back({speaker_, what, bytes, memory_class});
}
void PlanContext::traffic(const std::string& axis, const std::string& what, double bytes) {
  traffics_.push_back({speaker_, axis, what, bytes});
}
void PlanContext::updates(double elements) { updated_ = elements; }

}  // namespace drivetrain
