#include <drivetrain/toolkit/evaluation/text_codec.h>

#include <algorithm>
#include <iterator>

#include <drivetrain/error.h>
#include <drivetrain/services.h>

namespace drivetrain {
namespace {

std::shared_ptr<const Tokenizer> opened(const TokenizerOptions& options, const Services& services) {
  auto tokenizer = services.plugins->create<Tokenizer>(*options.tokenizer);
  tokenizer->open(options.folder);
  return tokenizer;
}

// Separators of documents come first: they stand in front of every text that the model has seen.
std::optional<int32_t> begin_of(const TokenizerFacts& facts) {
  if (!facts.prefix.empty()) return facts.prefix.back();
  return facts.eod ? facts.eod : facts.bos ? facts.bos : facts.eos;
}

}  // namespace

bool is_byte_vocabulary(const ModelFacts& model) { return model.vocab_size >= 256 && model.vocab_size <= 512; }

TextCodec::TextCodec(const std::string& owner, const TokenizerOptions& options, const ModelFacts& model,
                     const Services& services) {
  if (!options.tokenizer) {
    if (!options.folder.empty())
      throw fail(ErrorCode::config, owner,
                 ": tokenizer_folder is given and no tokenizer\n   name one as \"tokenizer\"");
    if (!is_byte_vocabulary(model))
      throw fail(ErrorCode::config, owner,
                 ": without a tokenizer the tokens of a text are its bytes, and the model has a ", "vocabulary of ",
                 model.vocab_size, " tokens\n   name the model's tokenizer as \"tokenizer\"");
    begin_ = 0;
    return;
  }
  tokenizer_ = opened(options, services);
  const TokenizerFacts facts = tokenizer_->facts();
  if (facts.vocab_size > model.vocab_size)
    throw fail(ErrorCode::config, owner, ": tokenizer/", options.tokenizer->type, " has ", facts.vocab_size,
               " tokens, and the model a vocabulary of ", model.vocab_size, "\n   use the tokenizer of this model");
  begin_ = begin_of(facts);
  marks_ = facts.prefix;
  for (const std::optional<int32_t>& id : {facts.bos, facts.eos, facts.pad, facts.eod})
    if (id) marks_.push_back(*id);
}

std::vector<int32_t> TextCodec::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  if (tokenizer_) {
    tokenizer_->encode(text, ids);
    return ids;
  }
  ids.reserve(text.size());
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

int64_t TextCodec::decoded(std::span<const int32_t> ids) const {
  std::string text;
  tokenizer_->decode(ids, text);
  return static_cast<int64_t>(text.size());
}

int64_t TextCodec::bytes_of(std::span<const int32_t> ids, std::optional<int32_t> before) const {
  if (!tokenizer_) return static_cast<int64_t>(ids.size());
  const auto is_mark = [&](int32_t id) { return std::find(marks_.begin(), marks_.end(), id) != marks_.end(); };
  std::vector<int32_t> text;
  if (before && !is_mark(*before)) text.push_back(*before);
  const int64_t in_front = decoded(text);
  std::copy_if(ids.begin(), ids.end(), std::back_inserter(text), [&](int32_t id) { return !is_mark(id); });
  return decoded(text) - in_front;
}

}  // namespace drivetrain
