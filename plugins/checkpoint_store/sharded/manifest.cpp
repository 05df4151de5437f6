#include "manifest.h"

#include "layout.h"
#include "signed_json.h"

namespace drivetrain::sharded {
namespace {

constexpr const char* kManifestFormat = "drivetrain-sharded";

// The ranks' files in their order, each of this tag and step.
void check_ranks(const std::string& tag, int64_t step, const std::vector<RankFiles>& ranks) {
  for (size_t i = 0; i < ranks.size(); ++i) {
    const SaveIdentity& found = ranks[i].identity;
    const SaveIdentity wanted{tag, step, static_cast<int64_t>(i), static_cast<int64_t>(ranks.size()), found.save};
    if (!(found == wanted))
      throw fail(ErrorCode::config, "wanted the files of ", wanted.text(), "; found those of ", found.text());
  }
}

}  // namespace

Value RankFiles::to_value() const {
  Value value = identity.to_value();
  value.set("data", data_name(identity.rank)), value.set("data_bytes", static_cast<int64_t>(data_bytes));
  value.set("index", index_name(identity.rank)), value.set("index_bytes", static_cast<int64_t>(index_bytes));
  value.set("index_digest", index_digest.text());
  return value;
}

RankFiles RankFiles::from(const Value& value) {
  RankFiles files;
  files.identity = SaveIdentity::from(value);
  files.data_bytes = static_cast<uint64_t>(number_of(value, "data_bytes", 0));
  files.index_bytes = static_cast<uint64_t>(number_of(value, "index_bytes", 0));
  const std::string& text = member_of(value, "index_digest").as_string();
  const auto digest = read_digest(text);
  if (!digest) throw fail(ErrorCode::config, "\"", text, "\" is no digest");
  files.index_digest = *digest;
  return files;
}

uint64_t Manifest::file_bytes() const {
  uint64_t bytes = 0;
  for (const RankFiles& rank : ranks) bytes += rank.data_bytes + rank.index_bytes;
  return bytes;
}

std::string manifest_text(const Manifest& manifest) {
  Value value = Value::object();
  value.set("format", kManifestFormat), value.set("version", kVersion);
  value.set("tag", manifest.tag), value.set("step", manifest.step), value.set("saved_at", manifest.saved_at);
  value.set("world_size", static_cast<int64_t>(manifest.ranks.size()));
  Value::Array ranks;
  for (const RankFiles& rank : manifest.ranks) ranks.push_back(rank.to_value());
  value.set("ranks", Value(std::move(ranks)));
  value.set("facts", manifest.facts);
  return signed_json(value);
}

Manifest read_manifest(const std::string& path, const std::string& text, const std::string& tag) {
  const Value value = read_signed_json(path, text, kManifestFormat);
  Manifest manifest;
  try {
    manifest.tag = member_of(value, "tag").as_string();
    manifest.step = number_of(value, "step", 0);
    manifest.saved_at = member_of(value, "saved_at").as_double();
    for (const Value& item : member_of(value, "ranks").items()) manifest.ranks.push_back(RankFiles::from(item));
    manifest.facts = member_of(value, "facts");
    if (manifest.ranks.empty()) throw fail(ErrorCode::config, "it lists no rank");
    check_ranks(manifest.tag, manifest.step, manifest.ranks);
  } catch (const Error& e) {
    throw damaged(path, "is not as this version writes it: ", e.what());
  }
  if (manifest.tag != tag)
    throw OtherTag(ErrorCode::checkpoint, concat(path, ": is of the tag ", manifest.tag, " (step ", manifest.step,
                                                 "), and lies in the folder of ", tag, "\n   give the folder its name ",
                                                 manifest.tag, " back"));
  return manifest;
}

std::vector<RankFiles> files_of_parts(const std::string& tag, int64_t step, const std::vector<Value>& parts) {
  try {
    std::vector<RankFiles> ranks;
    for (const Value& part : parts) ranks.push_back(RankFiles::from(part));
    if (ranks.empty()) throw fail(ErrorCode::config, "there is none");
    check_ranks(tag, step, ranks);
    return ranks;
  } catch (const Error& e) {
    throw fail(ErrorCode::internal, "checkpoint_store/sharded: commit of ", tag,
               " was not given what `write` returned on every rank: ", e.what());
  }
}

}  // namespace drivetrain::sharded
