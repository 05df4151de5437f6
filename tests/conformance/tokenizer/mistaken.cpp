// Every byte is a token, with a mistake that can be asked for.
#include <drivetrain/error.h>
#include <drivetrain/services.h>
#include <drivetrain/tokenizer.h>

#include <atomic>
#include <mutex>
#include <thread>

namespace {

using namespace drivetrain;

class Mistaken : public Tokenizer {
 public:
  struct Options {
    std::string mistake = "none";
  };
  static OptionTable options() {
    return table<Options>()
        .field("mistake", &Options::mistake, "what is wrong")
        .one_of({"none", "clears_ids", "clears_text", "gives_an_id_too_many", "drops_blanks", "keeps_broken_bytes",
                 "counts_its_calls", "shares_its_text", "bos_is_beyond", "decodes_anything", "names_anything",
                 "recognizes_anything"});
  }
  Mistaken(const Options& options, const Services&) : mistake_(options.mistake) {}

  std::string recognizes(const std::string&) const override { return is("recognizes_anything") ? "mine" : ""; }
  void open(const std::string&) override {}
  TokenizerFacts facts() const override {
    TokenizerFacts facts;
    facts.vocab_size = is("gives_an_id_too_many") ? 255 : 256;
    if (is("bos_is_beyond")) facts.bos = 256;
    facts.lossless = is("keeps_broken_bytes") ? Lossless::utf8 : Lossless::bytes;
    return facts;
  }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    if (is("clears_ids")) ids.clear();
    if (is("counts_its_calls") && ++calls_ % 11 == 0) ids.push_back(7);
    const std::string kept = is("shares_its_text") ? through_shared_text(text) : std::string(text);
    for (const char c : kept)
      if (c != ' ' || !is("drops_blanks")) ids.push_back(static_cast<unsigned char>(c));
  }
  void decode(std::span<const int32_t> ids, std::string& text) const override {
    if (is("clears_text")) text.clear();
    for (const int32_t id : ids) {
      if ((id < 0 || id >= facts().vocab_size) && !is("decodes_anything"))
        throw fail(ErrorCode::config, "token ", id, " is no byte");
      text += static_cast<char>(id);
    }
  }
  std::optional<int32_t> id_of(std::string_view token) const override {
    if (is("names_anything")) return 0;
    return token.size() == 1 ? std::optional<int32_t>(static_cast<unsigned char>(token[0])) : std::nullopt;
  }

 private:
  bool is(const char* mistake) const { return mistake_ == mistake; }
  // No race, and yet another thread's text may come back.
  std::string through_shared_text(std::string_view text) const {
    {
      const std::lock_guard lock(mutex_);
      shared_ = text;
    }
    std::this_thread::yield();
    const std::lock_guard lock(mutex_);
    return shared_;
  }

  const std::string mistake_;
  mutable std::atomic<int64_t> calls_ = 0;
  mutable std::mutex mutex_;
  mutable std::string shared_;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Tokenizer, "mistaken", Mistaken)
