// Models of SentencePiece.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include <drivetrain/error.h>
#include <drivetrain/services.h>
#include <drivetrain/tokenizer.h>
#include <drivetrain/toolkit/text/utf8.h>

#include "encoder.h"

namespace drivetrain::sentencepiece_models {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string folder;
};

bool is_file(const fs::path& path) {
  std::error_code unknown;
  return fs::is_regular_file(path, unknown);
}

// Whether a file begins as the library's models do: field 1 of the message, a piece, whose field 1 is a text.
bool is_model(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::array<char, 4> first = {};
  file.read(first.data(), first.size());
  const auto byte = [&](size_t at) { return static_cast<unsigned char>(first[at]); };
  return file.gcount() == 4 && byte(0) == 0x0A && byte(2) == 0x0A && byte(3) + 2 <= byte(1) && byte(1) < 0x80;
}

constexpr const char* kNames[] = {"tokenizer.model", "spiece.model", "sentencepiece.bpe.model"};

// Whether a tokenizer.json says the same in merges, and knows besides which tokens were added: it comes first then, as
// it does for transformers.
bool has_merges(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  return text.find("\"byte_fallback\"") != std::string::npos && text.find("\"merges\"") != std::string::npos;
}

// Tokens that files of transformers add to a model: without them texts get other ids than the model learned.
void refuse_added(const ModelFile& model, const std::string& file, const std::string& token, int64_t id) {
  const bool inside = id >= 0 && id < static_cast<int64_t>(model.pieces.size());
  if (inside && model.pieces[static_cast<size_t>(id)].text == token) return;
  throw fail(ErrorCode::config, file, ": gives the token \"", token, "\" the id ", id, ", and the model of ",
             "SentencePiece beside it ",
             inside ? concat("has \"", model.pieces[static_cast<size_t>(id)].text, "\" there")
                    : concat("has ", model.pieces.size(), " pieces"),
             ". Added tokens are read of a tokenizer.json only\n   let transformers write one, in Python ",
             "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(OTHER), or copy the model's file into a folder ",
             "of its own, which leaves out what was added");
}

void refuse_added_tokens(const ModelFile& model, const fs::path& folder, const std::string& config, const Value& read) {
  const Value* const decoder = read.find("added_tokens_decoder");
  const fs::path list = folder / "added_tokens.json";
  if (decoder && decoder->is_object()) {
    for (const Value::Member& member : decoder->members()) {
      const Value* const content = member.value.find("content");
      if (content && content->is_string())
        refuse_added(model, config, content->as_string(), std::atoll(member.key.c_str()));
    }
  } else if (is_file(list)) {
    const Value added = read_json_file(list.string());
    for (const Value::Member& member : added.members())
      refuse_added(model, list.string(), member.key, member.value.as_int());
  }
}

// The model in a folder, or the file itself; empty if there is none. A file that has the name of one and nothing of it
// counts where nothing else could be meant: `open` says what is wrong with it.
std::string find_model(const fs::path& place) {
  if (is_file(place)) {
    const bool named = std::find(std::begin(kNames), std::end(kNames), place.filename()) != std::end(kNames);
    return named || is_model(place) ? place.string() : "";
  }
  for (const char* const name : kNames)
    if (is_file(place / name))
      return is_model(place / name) || !is_file(place / "tokenizer.json") ? (place / name).string() : "";
  return {};
}

}  // namespace

class SentencePiece final : public Tokenizer {
 public:
  using Options = sentencepiece_models::Options;
  static OptionTable options() {
    return table<Options>()
        .field("folder", &Options::folder, "folder with tokenizer.model, or a model's file")
        .alias("file")
        .path();
  }
  SentencePiece(const Options& options, const Services&) : folder_(options.folder) {}

  std::string recognizes(const std::string& place) const override {
    const std::string model = find_model(place);
    if (!is_file(place) && has_merges(fs::path(place) / "tokenizer.json")) return {};
    return model.empty() ? "" : "SentencePiece, " + fs::path(model).filename().string();
  }

  void open(const std::string& named) override {
    const std::string place = named.empty() ? folder_ : named;
    if (place.empty())
      throw fail(ErrorCode::config, "tokenizer/sentencepiece: \"folder\" is missing, the folder of tokenizer.model");
    file_ = find_model(fs::absolute(place));
    if (file_.empty()) throw fail(ErrorCode::config, place, ": holds no model of SentencePiece");
    encoder_.emplace(read_model_file(file_), file_);
    const ModelFile& model = encoder_->model();
    facts_.files = {file_};
    facts_.vocab_size = static_cast<int64_t>(model.pieces.size());
    facts_.bos = encoder_->control(model.bos), facts_.eos = encoder_->control(model.eos);
    facts_.pad = encoder_->control(model.pad);
    facts_.eod = facts_.eos;
    const fs::path folder = fs::path(file_).parent_path();
    const std::string config = folder / "tokenizer_config.json";
    const Value read = is_file(config) ? read_json_file(config) : Value::object();
    refuse_added_tokens(model, folder, config, read);
    if (!is_file(config)) return;
    facts_.files.push_back(config);
    const Value* add = read.find("add_bos_token");
    if (add && add->is_bool() && add->as_bool() && facts_.bos) facts_.prefix = {*facts_.bos};
  }

  TokenizerFacts facts() const override { return facts_; }

  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    if (valid_utf8(text) == text.size()) return encoder_->encode(text, ids);
    std::string replaced;  // the library would replace every byte by itself
    append_replaced(text, replaced);
    encoder_->encode(replaced, ids);
  }
  void decode(std::span<const int32_t> ids, std::string& text) const override { encoder_->decode(ids, text); }
  std::optional<int32_t> id_of(std::string_view token) const override { return encoder_->id_of(token); }

 private:
  const std::string folder_;
  std::string file_;
  std::optional<Encoder> encoder_;
  TokenizerFacts facts_;
};

}  // namespace drivetrain::sentencepiece_models

DRIVETRAIN_PLUGIN(drivetrain::Tokenizer, "sentencepiece", drivetrain::sentencepiece_models::SentencePiece)
