// The conversations of some files as single documents. In memory are, per conversation, where its line begins and its
// number of tokens, 16 bytes together; the line is read and encoded whenever it is asked for.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <drivetrain/dataset.h>
#include <drivetrain/log.h>

#include "encoder.h"
#include "line_file.h"

namespace drivetrain::instruction {

enum class TooLong { refuse, cut, drop };

struct Reading {
  FieldNames names;
  int64_t max_length = 0;  // positions of a conversation
  TooLong too_long = TooLong::refuse;
  bool refuse_unread = false;  // a key that is not read is an error
};

// A key that lines have and nobody reads.
struct Unread {
  int64_t lines = 0;
  std::string first;  // FILE:LINE
};

// What was found in files. Of conversations that are in a set.
struct Figures {
  int64_t conversations = 0, positions = 0, learned = 0, cut = 0;
  int64_t dropped = 0;
  std::map<std::string, Unread> unread;   // as Conversation::unread names them
  uint64_t digest = 0xcbf29ce484222325u;  // FNV-1a over the hashes of all lines, also of those dropped
};

// Thread: `load` on main, everything else from any thread.
class Conversations : public Documents {
 public:
  // `encoder` outlives it.
  Conversations(const ConversationEncoder& encoder, const Reading& reading) : encoder_(encoder), reading_(reading) {}

  // Encodes every line of a file, on several threads, and adds it here or, where `is_held_out` says so, to `held_out`.
  // Error naming file and line for the first line that is no conversation.
  void load(const std::string& path, Log& log, const std::function<bool(uint64_t line_hash)>& is_held_out = {},
            Conversations* held_out = nullptr);

  int64_t count() const override { return static_cast<int64_t>(places_.size()); }
  int64_t length(int64_t document) const override { return places_[static_cast<size_t>(document)].positions; }
  void read(int64_t document, int64_t first, int64_t count, int64_t* tokens, int64_t* labels) const override;

  std::string origin(int64_t document) const override;  // file and line

  const Figures& figures() const { return figures_; }
  Value notes() const;  // files and figures, for resolved.json
  const std::vector<std::shared_ptr<const LineFile>>& files() const { return files_; }

 private:
  struct Place {
    int64_t begin;
    uint64_t hash;  // of the line
    int32_t file, positions;
  };
  struct Looked;  // at a line
  Looked look(const LineFile& file, const LineFile::Line& line) const;
  Encoded encode(const std::string& line) const;
  void add(const Looked& looked, const LineFile& file, const LineFile::Line& line);
  int32_t file_number(const std::shared_ptr<const LineFile>& file);

  const ConversationEncoder& encoder_;
  const Reading reading_;
  std::vector<std::shared_ptr<const LineFile>> files_;
  std::vector<Place> places_;
  Figures figures_;
};

}  // namespace drivetrain::instruction
