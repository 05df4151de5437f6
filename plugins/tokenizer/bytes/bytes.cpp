// Every byte is a token, and its value is the id.
#include <drivetrain/error.h>
#include <drivetrain/services.h>
#include <drivetrain/tokenizer.h>

namespace {

using namespace drivetrain;

class Bytes final : public Tokenizer {
 public:
  Bytes(const NoOptions&, const Services&) {}

  void open(const std::string& place) override {
    if (!place.empty()) throw fail(ErrorCode::config, place, ": tokenizer/bytes reads no files");
  }
  // Byte 0 separates documents, as in dataset/text: texts do not have it.
  TokenizerFacts facts() const override {
    TokenizerFacts facts;
    facts.vocab_size = 256, facts.eod = 0, facts.lossless = Lossless::bytes;
    return facts;
  }

  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    ids.reserve(ids.size() + text.size());
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  }
  void decode(std::span<const int32_t> ids, std::string& text) const override {
    for (const int32_t id : ids) {
      if (id < 0 || id > 255) throw fail(ErrorCode::config, "token ", id, " is no byte");
      text += static_cast<char>(id);
    }
  }
  std::optional<int32_t> id_of(std::string_view token) const override {
    return token.size() == 1 ? std::optional<int32_t>(static_cast<unsigned char>(token[0])) : std::nullopt;
  }
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Tokenizer, "bytes", Bytes)
