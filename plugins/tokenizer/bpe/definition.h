// What the files of a BPE tokenizer say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <drivetrain/value.h>

#include "added_tokens.h"
#include "blanks.h"
#include "files_beside.h"
#include "merges.h"
#include "pieces.h"

namespace drivetrain::bpe {

struct Definition {
  std::vector<std::string> files;                       // absolute
  std::vector<std::pair<std::string, int32_t>> tokens;  // as the files spell them
  std::vector<Merge> merges;
  bool whole_first = false;  // "ignore_merges"
  bool nfc = false;
  std::vector<Cut> cuts;
  std::optional<Blanks> blanks;  // then tokens are spelled in characters, not in bytes
  std::vector<AddedToken> added;
  std::vector<std::string> first;                     // special tokens that the files put in front of every text
  std::optional<bool> blank_in_front = std::nullopt;  // as a pre-tokenizer says that is ByteLevel and nothing else
};

// Hugging Face's tokenizer.json. Error(config) naming what it has and this version does not know.
Definition read_tokenizer_json(const std::string& path);
// GPT-2's pair of files. `beside` says which special tokens are found in texts; names that its class has and no file
// says are added to it. Error(config) if it or the vocabulary is of another family that has such files.
Definition read_gpt2_files(const std::string& vocab, const std::string& merges, FilesBeside& beside);

// Adds what the files beside a tokenizer.json say of its tokens. Error(config) for ids that do not fit and for settings
// that change texts in ways that are not known here.
void read_tokens_beside(FilesBeside& beside, Definition& definition);

// Its parts. `where`: for messages.
std::vector<Cut> read_pre_tokenizer(const Value& section, const std::string& where);
bool reads_nfc(const Value* normalizer, const std::string& where);
inline constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// "type" of a section; Error(config) if it has none.
std::string type_of(const Value& section, const std::string& where);
// The value of a key; Error(config) if there is none.
const Value& wanted(const Value& section, const char* key, const std::string& where);
int32_t token_id(const Value& value, const std::string& where);
// {"token": id, ...} to definition.tokens.
void read_tokens(const Value& vocab, Definition& definition, const std::string& where);
// {"content": "<s>", "lstrip": false, ...} without its id.
AddedToken read_flags(const Value& entry, const std::string& where);
// Error(config) naming the first key of `section` that is not among `known`.
void refuse_other_keys(const Value& section, std::initializer_list<const char*> known, const std::string& where);
// Looks up the tokens of merges. `where`: what a message calls the place.
class MergeReader {
 public:
  explicit MergeReader(Definition& into);
  void add(const std::string& left, const std::string& right, const std::string& where);
  void add(const std::string& both, const std::string& where);

 private:
  int32_t id(const std::string& token, const std::string& where) const;
  Definition& into_;
  TokenIds ids_;
};

// The bytes of a token in the spelling of byte-level vocabularies, where every byte is a printable character; nothing
// if another character is in it.
std::optional<std::string> token_bytes(std::string_view spelled);

}  // namespace drivetrain::bpe
