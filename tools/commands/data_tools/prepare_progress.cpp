#include "data_tools/prepare_progress.h"

#include <cerrno>
#include <filesystem>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/files/durable.h>

#include "data_tools/token_writer.h"

namespace drivetrain {
namespace {

constexpr int64_t kVersion = 1;

uint64_t count(const Value& value, const char* key, const std::string& path) {
  const Value* found = value.find(key);
  if (!found || !found->is_int() || found->as_int() < 0)
    throw fail(ErrorCode::config, path, ": has no number \"", key, "\": it is damaged\n   remove it to begin anew");
  return static_cast<uint64_t>(found->as_int());
}

// What the writer has to be able to go on from.
void check_place(const PrepareProgress& progress, const std::vector<TextInput>& inputs, const std::string& path) {
  const auto damaged = [&](const auto&... words) {
    return fail(ErrorCode::config, path, ": ", words..., ": it is damaged\n   remove it to begin anew");
  };
  const InputPlace& place = progress.place;
  if (place.file > inputs.size())
    throw damaged("\"file\" is ", place.file, ", and there are ", inputs.size(), " inputs");
  const uint64_t bytes = place.file < inputs.size() ? inputs[place.file].bytes : 0;
  const bool packed = place.file < inputs.size() && inputs[place.file].packing != Packing::none;
  if (!packed && place.offset > bytes)
    throw damaged("\"offset\" is ", place.offset, ", and input ", place.file, " has ", bytes, " bytes");
  if (place.line > place.offset) throw damaged("\"line\" is ", place.line, ", and \"offset\" ", place.offset);
  if (progress.counts.documents > progress.counts.tokens)  // every document has a token
    throw damaged("\"documents\" is ", progress.counts.documents, ", and \"tokens\" ", progress.counts.tokens);
  if (progress.counts.tokens > uint64_t{1} << 60) throw damaged("\"tokens\" is ", progress.counts.tokens);
}

// The first key in which two objects differ.
std::string difference(const Value& here, const Value& there) {
  for (const Value::Member& member : here.members()) {
    const Value* other = there.find(member.key);
    if (!other || *other != member.value)
      return concat(member.key, " is ", member.value.to_json(), ", and was ", other ? other->to_json() : "nothing");
  }
  return "its options are others";
}

}  // namespace

std::string progress_path(const std::string& prefix) { return prefix + ".progress.json"; }

std::optional<PrepareProgress> load_progress(const std::string& prefix, const Value& identity,
                                             const std::vector<TextInput>& inputs) {
  const std::string path = progress_path(prefix);
  std::error_code unknown;
  if (!std::filesystem::exists(path, unknown)) return std::nullopt;
  const Value file = read_json_file(path);
  const Value* of = file.find("of");
  if (!of || !(*of == identity)) {
    std::string files = path;
    for (const std::string& part : TokenWriter::unfinished_files(prefix)) files += " " + part;
    throw fail(ErrorCode::config, path,
               ": an unfinished preparation of something else: ", of ? difference(identity, *of) : "it says nothing",
               "\n   give another --output, or remove ", files);
  }
  if (const uint64_t version = count(file, "version", path); version != uint64_t{kVersion})
    throw fail(ErrorCode::config, path, ": \"version\" is ", version, ", and known is ", kVersion,
               "\n   go on with the program that wrote it, or remove it to begin anew");
  PrepareProgress progress;
  progress.place = {count(file, "file", path), count(file, "offset", path), count(file, "line", path)};
  progress.counts.documents = count(file, "documents", path), progress.counts.tokens = count(file, "tokens", path);
  progress.counts.empty = count(file, "empty", path), progress.counts.broken = count(file, "broken", path);
  const Value* const text = file.find("text_bytes");
  progress.counts.text_bytes = text ? count(file, "text_bytes", path) : 0;
  check_place(progress, inputs, path);
  const Value* complete = file.find("complete");
  progress.complete = complete && complete->is_bool() && complete->as_bool();
  return progress;
}

void save_progress(const std::string& prefix, const Value& identity, const PrepareProgress& progress) {
  Value file = Value::object();
  const auto put = [&](const char* key, uint64_t number) { file.set(key, static_cast<int64_t>(number)); };
  file.set("version", kVersion);
  file.set("of", identity);
  put("file", progress.place.file), put("offset", progress.place.offset), put("line", progress.place.line);
  put("documents", progress.counts.documents), put("tokens", progress.counts.tokens);
  put("empty", progress.counts.empty), put("broken", progress.counts.broken);
  put("text_bytes", progress.counts.text_bytes);
  file.set("complete", progress.complete);
  FileCalls& calls = system_file_calls();
  const std::string path = progress_path(prefix), part = path + ".part";
  write_durable_file(calls, part, file.to_json(2) + "\n");
  if (calls.rename(part, path) != 0) throw file_error(path, "rename a file to it", errno);
  sync_folder(calls, parent_folder(path));
}

}  // namespace drivetrain
