// Models of SentencePiece, through its library.
#include <sentencepiece_processor.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <drivetrain/error.h>
#include <drivetrain/services.h>
#include <drivetrain/tokenizer.h>
#include <drivetrain/toolkit/text/utf8.h>

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
    return model.empty() ? "" : "SentencePiece, " + fs::path(model).filename().string();
  }

  void open(const std::string& named) override {
    const std::string place = named.empty() ? folder_ : named;
    if (place.empty())
      throw fail(ErrorCode::config, "tokenizer/sentencepiece: \"folder\" is missing, the folder of tokenizer.model");
    file_ = find_model(fs::absolute(place));
    if (file_.empty()) throw fail(ErrorCode::config, place, ": holds no model of SentencePiece");
    const auto status = model_.Load(file_);
    if (!status.ok()) throw fail(ErrorCode::config, file_, ": is no whole model of SentencePiece: ", status.ToString());
    facts_.files = {file_};
    facts_.vocab_size = model_.GetPieceSize();
    facts_.bos = known(model_.bos_id()), facts_.eos = known(model_.eos_id()), facts_.pad = known(model_.pad_id());
    facts_.eod = facts_.eos;
    const std::string config = fs::path(file_).parent_path() / "tokenizer_config.json";
    if (!is_file(config)) return;
    facts_.files.push_back(config);
    const Value read = read_json_file(config);
    const Value* add = read.find("add_bos_token");
    if (add && add->is_bool() && add->as_bool() && facts_.bos) facts_.prefix = {*facts_.bos};
  }

  TokenizerFacts facts() const override { return facts_; }

  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    std::string replaced;  // the library would replace every byte by itself
    if (valid_utf8(text) != text.size()) append_replaced(text, replaced), text = replaced;
    std::vector<int> found;
    const auto status = model_.Encode({text.data(), text.size()}, &found);
    if (!status.ok()) throw fail(ErrorCode::config, file_, ": cannot encode: ", status.ToString());
    ids.insert(ids.end(), found.begin(), found.end());
  }

  void decode(std::span<const int32_t> ids, std::string& text) const override {
    for (const int32_t id : ids)
      if (id < 0 || id >= facts_.vocab_size)
        throw fail(ErrorCode::config, "token ", id, " is none of ", file_, ", which has ", facts_.vocab_size);
    std::string made;
    const auto status = model_.Decode(std::vector<int>(ids.begin(), ids.end()), &made);
    if (!status.ok()) throw fail(ErrorCode::config, file_, ": cannot decode: ", status.ToString());
    text += made;
  }

  std::optional<int32_t> id_of(std::string_view token) const override {
    const int id = model_.PieceToId({token.data(), token.size()});
    return model_.IdToPiece(id) == token ? std::optional<int32_t>(id) : std::nullopt;
  }

 private:
  static std::optional<int32_t> known(int id) { return id < 0 ? std::nullopt : std::optional<int32_t>(id); }

  const std::string folder_;
  std::string file_;
  ::sentencepiece::SentencePieceProcessor model_;
  TokenizerFacts facts_;
};

}  // namespace drivetrain::sentencepiece_models

DRIVETRAIN_PLUGIN(drivetrain::Tokenizer, "sentencepiece", drivetrain::sentencepiece_models::SentencePiece)
