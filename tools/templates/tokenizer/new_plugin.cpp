// Bytes, and words of a list on top of them: ids 0 to 255 are the bytes, 256 and up the words. The longest word wins.
#include <drivetrain/error.h>
#include <drivetrain/services.h>
#include <drivetrain/tokenizer.h>

#include <algorithm>

namespace {

using namespace drivetrain;

constexpr int32_t kBytes = 256;

class NewPlugin final : public Tokenizer {
 public:
  struct Options {
    std::vector<std::string> words = {" the ", " and ", " of ", "ing ", ", "};
  };
  static OptionTable options() {
    return table<Options>().field("words", &Options::words, "texts that are one token each; their order gives the ids");
  }
  NewPlugin(const Options& options, const Services&) : words_(options.words) {
    for (const std::string& word : words_)
      if (word.empty()) throw fail(ErrorCode::config, "tokenizer/new_plugin: words has an empty text; remove it");
  }

  void open(const std::string& place) override {
    if (!place.empty()) throw fail(ErrorCode::config, place, ": tokenizer/new_plugin reads no files");
  }

  TokenizerFacts facts() const override {
    TokenizerFacts facts;
    facts.vocab_size = kBytes + static_cast<int64_t>(words_.size());
    facts.eod = 0, facts.lossless = Lossless::bytes;
    return facts;
  }

  // Const, and called on any number of threads at once.
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    while (!text.empty()) {
      size_t length = 1;
      auto id = static_cast<int32_t>(static_cast<unsigned char>(text[0]));
      for (size_t w = 0; w < words_.size(); ++w)
        if (words_[w].size() > length && text.starts_with(words_[w]))
          length = words_[w].size(), id = kBytes + static_cast<int32_t>(w);
      ids.push_back(id);
      text.remove_prefix(length);
    }
  }

  void decode(std::span<const int32_t> ids, std::string& text) const override {
    for (const int32_t id : ids) {
      if (id < 0 || id >= facts().vocab_size)
        throw fail(ErrorCode::config, "tokenizer/new_plugin: ", id, " is no token; there are ", facts().vocab_size);
      if (id < kBytes)
        text += static_cast<char>(id);
      else
        text += words_[static_cast<size_t>(id - kBytes)];
    }
  }

  std::optional<int32_t> id_of(std::string_view token) const override {
    if (token.size() == 1) return static_cast<int32_t>(static_cast<unsigned char>(token[0]));
    const auto word = std::find(words_.begin(), words_.end(), token);
    if (word == words_.end()) return std::nullopt;
    return kBytes + static_cast<int32_t>(word - words_.begin());
  }

 private:
  const std::vector<std::string> words_;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Tokenizer, "new_plugin", NewPlugin)
