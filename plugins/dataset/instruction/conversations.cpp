#include "conversations.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <exception>

#include <drivetrain/random.h>

namespace drivetrain::instruction {
namespace {

constexpr int64_t kIgnored = -100;
constexpr int64_t kMostPositions = std::numeric_limits<int32_t>::max();

std::string hex(uint64_t x) {
  std::string text;
  for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[x >> shift & 15];
  return text;
}

}  // namespace

struct Conversations::Looked {
  int64_t positions = 0, learned = 0;  // 0 learned: dropped
  bool cut = false;
  std::vector<std::string> unread = {};
  uint64_t hash = 0;
  std::exception_ptr problem = nullptr;
};

Encoded Conversations::encode(const std::string& line) const {
  return encoder_.encode(parse_conversation(line, reading_.names));
}

Conversations::Looked Conversations::look(const LineFile& file, const LineFile::Line& line) const {
  Looked looked;
  looked.hash = hash_name(line.text);
  try {
    const Conversation conversation = parse_conversation(line.text, reading_.names);
    if (reading_.refuse_unread && !conversation.unread.empty())
      throw fail(
          ErrorCode::config, "the key \"", conversation.unread.front(), "\" is not read, and unknown_keys is ",
          "\"refuse\"\n   name it in ignored_keys if nothing is lost without it, or set unknown_keys to \"say\"");
    looked.unread = conversation.unread;
    Encoded encoded = encoder_.encode(conversation);
    const int64_t length = encoded.positions(), most = std::min(reading_.max_length, kMostPositions);
    if (length > most && reading_.too_long == TooLong::refuse)
      throw fail(ErrorCode::config, "the conversation has ", length, " positions, max_length is ", most,
                 ". Set too_long to \"cut\" or \"drop\", or max_length and seq_length to more");
    if (length > most && reading_.too_long == TooLong::drop) return looked;
    looked.cut = length > most;
    encoded.tokens.resize(static_cast<size_t>(std::min(length, most)) + 1);
    encoded.learned.resize(encoded.tokens.size());
    looked.positions = encoded.positions();
    looked.learned = encoded.learned_positions();
  } catch (const Error& e) {
    looked.problem =
        std::make_exception_ptr(fail(e.code(), "dataset/instruction: ", file.path(), ":", line.number, ": ", e.what()));
  }
  return looked;
}

int32_t Conversations::file_number(const std::shared_ptr<const LineFile>& file) {
  if (files_.empty() || files_.back() != file) files_.push_back(file);
  return static_cast<int32_t>(files_.size()) - 1;
}

void Conversations::add(const Looked& looked, const LineFile& file, const LineFile::Line& line) {
  figures_.digest = (figures_.digest ^ looked.hash) * 0x100000001b3u;
  for (const std::string& key : looked.unread) {
    Unread& unread = figures_.unread[key];
    if (unread.lines++ == 0) unread.first = concat(file.path(), ":", line.number);
  }
  if (looked.learned == 0) {
    ++figures_.dropped;
    return;
  }
  places_.push_back(
      {line.begin, looked.hash, static_cast<int32_t>(files_.size()) - 1, static_cast<int32_t>(looked.positions)});
  ++figures_.conversations;
  figures_.positions += looked.positions, figures_.learned += looked.learned, figures_.cut += looked.cut;
}

void Conversations::load(const std::string& path, Log& log, const std::function<bool(uint64_t)>& is_held_out,
                         Conversations* held_out) {
  const auto file = std::make_shared<const LineFile>(path);
  file_number(file);
  if (held_out) held_out->file_number(file);
  file->each_block([&](const std::vector<LineFile::Line>& lines) {
    std::vector<Looked> looked(lines.size());
    at::parallel_for(0, static_cast<int64_t>(lines.size()), 16, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) looked[i] = look(*file, lines[i]);
    });
    for (size_t i = 0; i < lines.size(); ++i) {
      if (looked[i].problem) std::rethrow_exception(looked[i].problem);
      (held_out && is_held_out(looked[i].hash) ? *held_out : *this).add(looked[i], *file, lines[i]);
    }
    log.progress(concat("dataset/instruction: ", path, ": ", 100 * lines.back().begin / file->size(), " % read"));
  });
}

std::string Conversations::origin(int64_t document) const {
  const Place& place = places_[static_cast<size_t>(document)];
  const LineFile& file = *files_[static_cast<size_t>(place.file)];
  return concat(file.path(), ":", file.number(place.begin));
}

void Conversations::read(int64_t document, int64_t first, int64_t count, int64_t* tokens, int64_t* labels) const {
  const Place& place = places_[static_cast<size_t>(document)];
  const LineFile& file = *files_[static_cast<size_t>(place.file)];
  const std::string line = file.line(place.begin);
  if (hash_name(line) != place.hash)
    throw fail(ErrorCode::io, "dataset/instruction: ", file.path(),
               " was changed while it was in use: the line at byte ", place.begin,
               " is another than at the start. Put the file back as it was");
  const Encoded encoded = encode(line);
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(first + i);
    tokens[i] = encoded.tokens[at];
    labels[i] = encoded.learned[at + 1] ? encoded.tokens[at + 1] : kIgnored;
  }
}

Value Conversations::notes() const {
  const Figures& f = figures_;
  Value note = Value::object();
  Value::Array files;
  for (const auto& file : files_) files.push_back(Value::Object{{"path", file->path()}, {"bytes", file->size()}});
  note.set("files", Value(std::move(files)));
  note.set("conversations", f.conversations);
  note.set("tokens", f.positions);
  note.set("learned", f.learned);
  note.set("cut", f.cut);
  note.set("dropped", f.dropped);
  note.set("fnv1a", hex(f.digest));
  return note;
}

}  // namespace drivetrain::instruction
