// Texts to tokens and back. A tokenizer is read from files that another program made; it is used to prepare data and to
// show what a model says. A training run only records which tokenizer goes with its model.
//
// Bytes. `encode` takes any bytes. Where they are not UTF-8, every maximal invalid part counts as U+FFFD, as Python's
// errors="replace" has it, unless TokenizerFacts::lossless says otherwise.
//
// Thread: `recognizes` and `open` on main; all other calls are const and come from any number of threads at once.
// Errors: Error(config) for files that are missing, damaged or hold what the tokenizer does not know, naming the file
// and what it is; Error(io) for the disk.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <drivetrain/plugin.h>

DRIVETRAIN_CONTRACT(tokenizer)

namespace drivetrain {

enum class Lossless {
  no,    // decode(encode(x)) may differ from x: a normaliser, or tokens that take white space
  utf8,  // equal for every x that is valid UTF-8
  bytes  // equal for all bytes
};

struct TokenizerFacts {
  int64_t vocab_size = 0;                // every id is below it; not every one below it need be a token
  std::optional<int32_t> bos, eos, pad;  // begin of a text, end of an answer, filling
  std::optional<int32_t> eod;            // what separates documents in training data
  std::vector<int32_t> prefix;           // ids that the model expects in front of a text; `encode` adds none
  Lossless lossless = Lossless::no;
  std::vector<std::string> files;  // absolute paths of all that was read; equal files, equal tokenizer
};

class DRIVETRAIN_API Tokenizer : public Plugin {
 public:
  static constexpr const char* kKind = "tokenizer";
  ~Tokenizer() override;

  // One phrase if `place`, a folder or a file, holds what this tokenizer reads ("byte-level BPE, tokenizer.json"), by
  // the names of its files and what stands in them; empty if it does not. Called on an object that is not opened, any
  // number of times. Throws nothing but Error(io).
  virtual std::string recognizes(const std::string& place) const;
  // Called once, before all calls below. `place`: a folder or a file; empty: what the options name.
  virtual void open(const std::string& place) = 0;

  virtual TokenizerFacts facts() const = 0;
  // Appends the tokens of `text` to `ids`. A text is encoded as a whole: tokens of two texts are not those of both
  // joined. Adds no token for begin or end.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
  // Appends what the tokens stand for to `text`. The bytes of one character may come from several tokens, so those of
  // single tokens need not be UTF-8. Error(config) for an id that is no token.
  virtual void decode(std::span<const int32_t> ids, std::string& text) const = 0;
  // The id of a token as the files spell it; nothing if there is none.
  virtual std::optional<int32_t> id_of(std::string_view token) const = 0;
};

}  // namespace drivetrain
