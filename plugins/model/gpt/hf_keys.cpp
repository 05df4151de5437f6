#include "hf_keys.h"

#include <algorithm>
#include <deque>
#include <map>

namespace drivetrain::gpt {
namespace {

std::string plain_dtype(const Value& value) {
  const std::string text = value.is_string() ? value.as_string() : "";
  return text.starts_with("torch.") ? text.substr(6) : text;
}

// Letters that are too many, missing or other ones.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row[b.size()];
}

// A size that the code of a model works out where a file says null.
bool is_derived(const FamilyKey& key) {
  for (const char* option : {"num_query_groups", "kv_channels", "ffn_hidden_size"})
    if (std::find(key.sets.begin(), key.sets.end(), option) != key.sets.end()) return true;
  return false;
}

std::string said_of(const FamilyKey& key) {
  std::string text = key.why, words;
  for (const auto& [theirs, ours] : key.values) words += concat(words.empty() ? "" : ", ", theirs);
  if (!words.empty()) text += concat(text.empty() ? "" : "; ", words);
  if (key.use != KeyUse::honoured || !text.empty()) return text;
  return key.absent ? "" : "has to be there";
}

std::string plain_of(const FamilyKey& key) {
  if (key.use == KeyUse::refused) return key.only.empty() ? "" : Value(key.only).to_json();
  return key.absent && !key.absent->is_null() ? key.absent->to_json() : "";
}

}  // namespace

bool same_fact(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return a.as_double() == b.as_double();
  if (a.is_string() && b.is_string()) return plain_dtype(a) == plain_dtype(b);
  return a == b;
}

const Value* HfReader::find(const std::string& key) const {
  const Value* const v = config_.find(key);
  return v && !v->is_null() ? v : nullptr;
}

int64_t HfReader::integer(const char* key, int64_t otherwise) const {
  return find(key) ? find(key)->as_int() : otherwise;
}
double HfReader::number(const char* key, double otherwise) const {
  return find(key) ? find(key)->as_double() : otherwise;
}
bool HfReader::flag(const char* key, bool otherwise) const { return find(key) ? find(key)->as_bool() : otherwise; }
std::string HfReader::text(const char* key, const char* otherwise) const {
  return find(key) ? find(key)->as_string() : otherwise;
}

void HfReader::refuse_if(bool bad, const std::string& key, const std::string& why) const {
  if (bad) throw wrong("\"", key, "\": ", find(key) ? find(key)->to_json() : "null", " is not supported: ", why);
}

std::string HfReader::find_spelled(const FamilyKey& key) const {
  std::string first;
  for (const std::string& name : spellings(key.names)) {
    if (!find(name)) continue;
    if (first.empty()) {
      first = name;
    } else if (!same_fact(*find(first), *find(name))) {
      throw wrong("\"", first, "\" is ", find(first)->to_json(), " and \"", name, "\" is ", find(name)->to_json(),
                  ": two spellings of one fact, which differ\n   keep the one that the weights were trained with");
    }
  }
  return first;
}

void HfReader::put(const FamilyKey& key, Value& options) const {
  const std::string name = spellings(key.names).front(), found = find_spelled(key);
  Value ours;
  if (!found.empty()) {
    try {
      ours = to_ours(key, *find(found));
    } catch (const Error& e) {
      if (key.values.empty()) throw;
      refuse_if(true, found, e.what());
    }
  } else if (is_null(name.c_str()) && (is_derived(key) || !key.null.is_null())) {
    ours = key.null;
  } else {
    if (!key.absent) throw wrong("has no \"", name, "\"");
    if (!key.absent->is_null()) ours = to_ours(key, *key.absent);
  }
  for (const std::string& option : key.sets) options.set(option, ours);
}

void HfReader::refuse(const FamilyKey& key) const {
  const std::string found = find_spelled(key);
  if (found.empty()) return;
  const Value& value = *find(found);
  const bool fine =
      std::any_of(key.only.begin(), key.only.end(), [&](const Value& one) { return same_fact(one, value); });
  refuse_if(!fine, found, key.why);
}

Value HfReader::options() const {
  Value options = Value::object();
  for (const FamilyKey& key : family_.keys) {
    if (key.use == KeyUse::refused) refuse(key);
    if (key.use == KeyUse::honoured && key.reads.empty()) put(key, options);
  }
  const Value* const hidden = options.find("hidden_size");
  Value all = family_options(family_, hidden ? std::optional(hidden->as_int()) : std::nullopt);
  for (const Value::Member& member : options.members()) all.set(member.key, member.value);
  return all;
}

std::vector<std::pair<std::string, std::string>> HfReader::unknown() const {
  std::vector<std::string> known;
  std::vector<std::pair<std::string, std::string>> list;
  for (const FamilyKey& key : family_.keys)
    for (const std::string& name : spellings(key.names)) known.push_back(name);
  for (const Value::Member& member : config_.members()) {
    const std::string& key = member.key;
    // Those with "_" are transformers' own notes.
    if (key.starts_with("_") || std::find(known.begin(), known.end(), key) != known.end()) continue;
    std::string near;
    size_t least = std::max<size_t>(2, key.size() / 5) + 1;
    for (const std::string& one : known)
      if (const size_t letters = distance(key.substr(0, 100), one); letters < least && !config_.find(one))
        near = one, least = letters;
    list.emplace_back(
        key, concat("it is no key of ", family_.model_type, near.empty() ? "" : concat("; is \"", near, "\" meant?")));
  }
  return list;
}

const std::vector<KeyRow>& key_rows() {
  static std::deque<std::string> kept;
  static const std::vector<KeyRow> rows = [] {
    struct Row {
      std::string names, why, plain, of;
      KeyUse use;
      size_t families = 0;
    };
    std::vector<Row> list;
    for (const FamilyPtr& family : known_families())
      for (const FamilyKey& key : family->keys) {
        const std::string why = said_of(key), plain = plain_of(key);
        auto found = std::find_if(list.begin(), list.end(), [&](const Row& r) {
          return r.names == key.names && r.use == key.use && r.why == why && r.plain == plain;
        });
        if (found == list.end()) found = list.insert(found, {key.names, why, plain, "", key.use});
        found->of += concat(found->families++ ? ", " : "", family->title);
      }
    std::vector<KeyRow> result;
    const auto keep = [](std::string text) { return kept.emplace_back(std::move(text)).c_str(); };
    for (const Row& r : list)
      result.push_back({keep(r.families == known_families().size() ? "all" : r.of), keep(r.names), r.use, keep(r.why),
                        r.plain.empty() ? nullptr : keep(r.plain)});
    return result;
  }();
  return rows;
}

}  // namespace drivetrain::gpt
