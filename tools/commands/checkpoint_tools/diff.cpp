#include "checkpoint_tools/diff.h"

#include <cmath>
#include <filesystem>

#include "checkpoint/held_state.h"
#include "formats/frozen_base.h"

namespace drivetrain {
namespace {

// A tensor or a counter that is not finite on one side is far from any other.
bool within(const ElementDifference& found, std::optional<double> tolerance) {
  return found.differing == 0 || (tolerance && found.not_finite == 0 && found.absolute <= *tolerance);
}

bool counters_within(const std::string& name, const Value& a, const Value& b, std::optional<double> tolerance) {
  return tolerance && std::abs(stored_number(name, a) - stored_number(name, b)) <= *tolerance;
}

void compare_counters(const Value& a, const Value& b, std::optional<double> tolerance, CheckpointDifferences& found) {
  const auto text = [](const Value* value) { return value ? value->to_json() : "absent"; };
  const auto compare = [&](const std::string& name, const Value* of_a, const Value* of_b) {
    if (of_a && of_b && *of_a == *of_b) return;
    found.counters.push_back({name, text(of_a), text(of_b)});
    if (!of_a || !of_b || !counters_within(name, *of_a, *of_b, tolerance)) ++found.counters_beyond;
  };
  for (const Value::Member& member : a.members()) compare(member.key, &member.value, b.find(member.key));
  for (const Value::Member& member : b.members())
    if (!a.find(member.key)) compare(member.key, nullptr, &member.value);
}

// The names of both in one order: each call has at least one of the two.
template <class Visit>
void pair_by_name(const std::vector<StoredTensor>& a, const std::vector<StoredTensor>& b, const Visit& visit) {
  for (size_t i = 0, j = 0; i < a.size() || j < b.size();) {
    const bool takes_a = j == b.size() || (i < a.size() && a[i].name <= b[j].name);
    const bool takes_b = i == a.size() || (j < b.size() && b[j].name <= a[i].name);
    visit(takes_a ? a[i] : StoredTensor{}, takes_b ? b[j] : StoredTensor{});
    i += takes_a, j += takes_b;
  }
}

const Value& object_in(const Checkpoint& checkpoint, const char* key) {
  static const Value none = Value::object();
  const Value* const found = checkpoint.facts().find(key);
  return found && found->is_object() ? *found : none;
}

// What stands for the values that a checkpoint holds by reference.
Value base_of(const Checkpoint& checkpoint) {
  Value digest = Value::object();
  if (const FrozenBase base = frozen_base_of(checkpoint); !base.params.empty()) digest.set(kFrozenBase, base.digest);
  return digest;
}

}  // namespace

std::pair<std::string, std::string> split_folder_and_tag(const std::string& word) {
  std::error_code unknown;
  const size_t colon = word.rfind(':');
  if (colon == std::string::npos || colon == 0 || std::filesystem::is_directory(word, unknown)) return {word, ""};
  return {word.substr(0, colon), word.substr(colon + 1)};
}

CheckpointDifferences differences(const Checkpoint& a, const Checkpoint& b, std::optional<double> tolerance) {
  CheckpointDifferences found;
  found.config = config_changes(object_in(a, "config"), object_in(b, "config"));
  compare_counters(object_in(a, "counters"), object_in(b, "counters"), tolerance, found);
  compare_counters(base_of(a), base_of(b), {}, found);
  pair_by_name(a.tensors(), b.tensors(), [&](const StoredTensor& of_a, const StoredTensor& of_b) {
    const bool comparable = of_a.name == of_b.name && of_a.shape == of_b.shape;
    CheckpointDifferences::OfTensor difference{of_a, of_b, {}};
    if (comparable) difference.elements = difference_of(a, of_a, b, of_b);
    const bool other_type = of_a.dtype != of_b.dtype;
    if (comparable && difference.elements.differing == 0 && !other_type) {
      ++found.equal_tensors;
      return;
    }
    if (!comparable || (other_type && !tolerance) || !within(difference.elements, tolerance)) ++found.tensors_beyond;
    found.tensors.push_back(difference);
  });
  return found;
}

}  // namespace drivetrain
