#include "train/ancestry.h"

#include <sys/random.h>

#include <algorithm>
#include <chrono>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/files/read_file.h>
#include <drivetrain/toolkit/text.h>

namespace drivetrain {

std::vector<std::string> tags_in(const Checkpoint& checkpoint, const char* fact) {
  std::vector<std::string> tags;
  const Value* const list = checkpoint.facts().find(fact);
  if (!list || !list->is_array()) return tags;
  for (const Value& tag : list->items())
    if (tag.is_string()) tags.push_back(tag.as_string());
  return tags;
}

size_t newest_from(const CheckpointStore& store, const std::vector<StoredTag>& tags, const std::string& origin,
                   const char* fact) {
  const auto found = std::find_if(tags.begin(), tags.end(), [&](const StoredTag& t) { return t.tag == origin; });
  const auto last = static_cast<size_t>(found - tags.begin());
  if (last == tags.size()) return last;
  for (size_t i = 0; i < last; ++i) {
    try {
      const std::vector<std::string> from = tags_in(*store.open(tags[i].tag), fact);
      if (std::find(from.begin(), from.end(), origin) != from.end()) return i;
    } catch (const Error& e) {
      if (e.code() != ErrorCode::checkpoint) throw;
    }
  }
  return last;
}

namespace {

std::string text_in_resolved(const std::string& output_dir, const char* key) {
  constexpr uint64_t kMost = uint64_t{64} << 20;
  try {
    const auto text = read_file(output_dir + "/resolved.json", kMost);
    const Value config = text ? parse_json(*text, "resolved.json") : Value();
    const Value* const found = config.find(key);
    if (found && found->is_string()) return found->as_string();
  } catch (const Error&) {  // edited: the newest checkpoint counts
  }
  return {};
}

}  // namespace

std::string new_run_id() {
  uint64_t id = 0;
  if (getrandom(&id, sizeof id, 0) != static_cast<ssize_t>(sizeof id))
    id = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  return formatted("%016llx", static_cast<unsigned long long>(id));
}

std::string run_of_folder(const std::string& output_dir) { return text_in_resolved(output_dir, kRunOfFolder); }

std::string last_origin(const std::string& output_dir) { return text_in_resolved(output_dir, kGoesOnFrom); }

}  // namespace drivetrain
