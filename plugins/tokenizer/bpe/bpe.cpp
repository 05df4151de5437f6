// BPE of bytes, or of characters with their bytes to fall back on: Hugging Face's tokenizer.json, and GPT-2's pair of
// files.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <drivetrain/error.h>
#include <drivetrain/services.h>
#include <drivetrain/tokenizer.h>

#include "encoder.h"
#include "special_tokens.h"

namespace drivetrain::bpe {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string folder;
};

bool is_file(const fs::path& path) {
  std::error_code unknown;
  return fs::is_regular_file(path, unknown);
}

// The files of a tokenizer: tokenizer.json alone, or vocabulary and merges. Empty: there are none.
struct Files {
  std::string json, vocab, merges;
};

Files find_files(const fs::path& place) {
  if (is_file(place)) {
    const std::string name = place.filename().string();
    if (name == "encoder.json" || name == "vocab.json" || name == "vocab.bpe" || name == "merges.txt")
      return find_files(place.parent_path() / ".");
    return {.json = place.string(), .vocab = {}, .merges = {}};
  }
  if (is_file(place / "tokenizer.json"))
    return {.json = (place / "tokenizer.json").string(), .vocab = {}, .merges = {}};
  for (const auto& [vocab, merges] : {std::pair{"encoder.json", "vocab.bpe"}, {"vocab.json", "merges.txt"}})
    if (is_file(place / vocab) && is_file(place / merges))
      return {.json = {}, .vocab = (place / vocab).string(), .merges = (place / merges).string()};
  return {};
}

// Whether a file of that name is of no kind at all: then `open` says what is wrong with it, and nobody else would.
bool is_damaged(const std::string& path) {
  try {
    const Value value = read_json_file(path);
    const Value* const model = value.is_object() ? value.find("model") : nullptr;
    const Value* const type = model && model->is_object() ? model->find("type") : nullptr;
    return !model || (type && type->is_string() && type->as_string() == "BPE" && !model->find("merges"));
  } catch (const Error&) {
    return true;
  }
}

// Whether a tokenizer.json is of the kind that is read here; what it has besides is found when it is opened.
enum class Kind { none, byte_level, byte_fallback };
Kind kind_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto has = [&](std::string_view word) { return text.find(word) != std::string::npos; };
  if (has("\"pre_tokenizer\"") && has("\"ByteLevel\"") && has("\"merges\"")) return Kind::byte_level;
  if (has("\"<0x00>\"") && has("\"byte_fallback\"") && has("\"merges\"")) return Kind::byte_fallback;
  return path.ends_with("/tokenizer.json") && is_damaged(path) ? Kind::byte_level : Kind::none;
}

}  // namespace

class Bpe final : public Tokenizer {
 public:
  using Options = bpe::Options;
  static OptionTable options() {
    return table<Options>()
        .field("folder", &Options::folder, "folder with tokenizer.json or with vocabulary and merges, or one such file")
        .alias("file")
        .path();
  }
  Bpe(const Options& options, const Services&) : folder_(options.folder) {}

  std::string recognizes(const std::string& place) const override {
    const Files files = find_files(place);
    if (!files.vocab.empty()) return "byte-level BPE, vocabulary and merges";
    const Kind kind = files.json.ends_with(".json") ? kind_of(files.json) : Kind::none;
    if (kind == Kind::none) return {};
    return (kind == Kind::byte_level ? "byte-level BPE, " : "BPE with byte_fallback, ") +
           fs::path(files.json).filename().string();
  }

  void open(const std::string& named) override {
    const std::string place = named.empty() ? folder_ : named;
    if (place.empty())
      throw fail(ErrorCode::config, "tokenizer/bpe: \"folder\" is missing, the folder that holds tokenizer.json");
    const Files files = find_files(fs::absolute(place));
    if (files.json.empty() && files.vocab.empty())
      throw fail(ErrorCode::config, place,
                 ": holds neither tokenizer.json nor vocab.json with merges.txt nor encoder.json with vocab.bpe");
    const bool is_pair = files.json.empty();
    FilesBeside beside =
        read_files_beside(fs::path(is_pair ? files.vocab : files.json).parent_path().string(), kAllTokenKeys);
    Definition read = is_pair ? read_gpt2_files(files.vocab, files.merges, beside) : read_tokenizer_json(files.json);
    if (!is_pair) read_tokens_beside(beside, read);
    facts_.files = read.files;
    const std::vector<std::string> first = std::move(read.first);
    const bool takes_spaces =
        std::any_of(read.added.begin(), read.added.end(), [](const AddedToken& t) { return t.lstrip || t.rstrip; });
    const bool changes = read.nfc || std::any_of(read.cuts.begin(), read.cuts.end(), [](const Cut& cut) {
                           return cut.kind == Cut::Kind::space_in_front || cut.kind == Cut::Kind::only_matches;
                         });
    facts_.lossless = takes_spaces || changes || read.blanks ? Lossless::no : Lossless::utf8;
    encoder_.emplace(std::move(read));
    facts_.vocab_size = encoder_->vocab_size();
    const std::string& file = facts_.files.front();
    for (const std::string& token : first) {
      const auto id = encoder_->id_of(token);
      if (!id) throw fail(ErrorCode::config, file, ": post_processor: there is no token \"", token, "\"");
      facts_.prefix.push_back(*id);
    }
    set_special_tokens(beside, *encoder_, facts_);
  }

  TokenizerFacts facts() const override { return facts_; }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override { encoder_->encode(text, ids); }
  void decode(std::span<const int32_t> ids, std::string& text) const override { encoder_->decode(ids, text); }
  std::optional<int32_t> id_of(std::string_view token) const override { return encoder_->id_of(token); }

 private:
  const std::string folder_;
  std::optional<Encoder> encoder_;
  TokenizerFacts facts_;
};

}  // namespace drivetrain::bpe

DRIVETRAIN_PLUGIN(drivetrain::Tokenizer, "bpe", drivetrain::bpe::Bpe)
