#include "model_file.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <string_view>
#include <unordered_set>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/files/read_file.h>

namespace drivetrain::sentencepiece_models {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 30;
constexpr size_t kLongestPiece = 8000;  // bytes, as the library has it

// The fields of a message one after the other.
class Fields {
 public:
  Fields(std::string_view message, const std::string& file) : left_(message), file_(file) {}

  // What next() found.
  uint32_t number = 0;
  uint64_t value = 0;      // of a number, a flag or an enumeration; the bits of a float
  std::string_view bytes;  // of a text or a message

  bool next() {
    if (left_.empty()) return false;
    const uint64_t tag = varint();
    number = static_cast<uint32_t>(tag >> 3);
    value = 0, bytes = {};
    switch (tag & 7) {
      case 0:
        value = varint();
        return true;
      case 1:
        value = fixed(8);
        return true;
      case 2:
        bytes = take(varint());
        return true;
      case 5:
        value = fixed(4);
        return true;
      default:
        throw broken("a field of a kind that Protocol Buffers does not have");
    }
  }
  Error broken(const std::string& what) const {
    return fail(ErrorCode::config, file_, ": is no whole model of SentencePiece: it has ", what,
                "; copy or download the file again");
  }

 private:
  std::string_view take(uint64_t count) {
    if (count > left_.size()) throw broken("a field that ends behind the end of the file");
    const std::string_view taken = left_.substr(0, count);
    left_.remove_prefix(count);
    return taken;
  }
  uint64_t varint() {
    uint64_t made = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      made |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return made;
    }
    throw broken("a number of more than 64 bits");
  }
  uint64_t fixed(size_t size) {
    uint64_t made = 0;
    std::memcpy(&made, take(size).data(), size);
    return made;
  }

  std::string_view left_;
  const std::string& file_;
};

Piece read_piece(std::string_view message, const std::string& file) {
  Piece piece;
  Fields fields(message, file);
  while (fields.next()) {
    if (fields.number == 1) piece.text = fields.bytes;
    if (fields.number == 2) piece.score = std::bit_cast<float>(static_cast<uint32_t>(fields.value));
    if (fields.number != 3) continue;
    if (fields.value < 1 || fields.value > 6)
      throw fields.broken("a piece of type " + std::to_string(fields.value) + ", of the types 1 to 6");
    piece.type = static_cast<PieceType>(fields.value);
  }
  return piece;
}

void read_trainer(std::string_view message, const std::string& file, ModelFile& model) {
  Fields fields(message, file);
  const auto text = [&](std::string& into) {
    if (!fields.bytes.empty()) into = fields.bytes;
  };
  while (fields.next()) {
    switch (fields.number) {
      case 3:
        if (fields.value < 1 || fields.value > 4)
          throw fields.broken("the model type " + std::to_string(fields.value) + ", of the types 1 to 4");
        model.type = static_cast<ModelType>(fields.value);
        break;
      case 24:
        model.treat_whitespace_as_suffix = fields.value != 0;
        break;
      case 35:
        model.byte_fallback = fields.value != 0;
        break;
      case 44:
        model.unk_surface = fields.bytes;
        break;
      case 46:
        text(model.bos);
        break;
      case 47:
        text(model.eos);
        break;
      case 48:
        text(model.pad);
        break;
      default:
        break;  // how it was trained
    }
  }
}

void read_normalizer(std::string_view message, const std::string& file, NormalizerSpec& spec) {
  Fields fields(message, file);
  while (fields.next()) {
    if (fields.number == 2) spec.rules = fields.bytes;
    if (fields.number == 3) spec.add_dummy_prefix = fields.value != 0;
    if (fields.number == 4) spec.remove_extra_whitespaces = fields.value != 0;
    if (fields.number == 5) spec.escape_whitespaces = fields.value != 0;
  }
}

void check_pieces(ModelFile& model, const Fields& file) {
  std::unordered_set<std::string_view> names;
  if (model.byte_fallback) model.byte_pieces.assign(256, -1);
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const Piece& piece = model.pieces[id];
    if (!std::isfinite(piece.score)) throw file.broken("a score that is no number, id " + std::to_string(id));
    const std::string named = "the piece \"" + piece.text + "\", id " + std::to_string(id) + ", ";
    if (piece.text.empty()) throw file.broken("a piece without a text, id " + std::to_string(id));
    if (piece.text.size() >= kLongestPiece)
      throw file.broken("a piece of more than 8000 bytes, id " + std::to_string(id));
    if (piece.text.find('\0') != std::string::npos)
      throw file.broken("a piece with a byte 0 in it, id " + std::to_string(id));
    if (!names.insert(piece.text).second) throw file.broken(named + "a second time");
    if (piece.type == PieceType::unknown) {
      if (model.unk >= 0) throw file.broken("two pieces for what is unknown");
      model.unk = static_cast<int32_t>(id);
    }
    if (piece.type != PieceType::byte) continue;
    const int byte = byte_of_piece(piece.text);
    if (byte < 0 || !model.byte_fallback) throw file.broken(named + "as a byte, and no byte_fallback or no such byte");
    model.byte_pieces[static_cast<size_t>(byte)] = static_cast<int32_t>(id);
  }
  if (model.unk < 0) throw file.broken("no piece for what is unknown");
  for (const int32_t id : model.byte_pieces)
    if (id < 0) throw file.broken("byte_fallback and not all 256 bytes");
}

}  // namespace

int byte_of_piece(const std::string& text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  int byte = 0;
  for (const char c : text.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (digit < 0) return -1;
    byte = 16 * byte + digit;
  }
  return byte;
}

ModelFile read_model_file(const std::string& path) {
  const std::optional<std::string> bytes = read_file(path, kMostBytes, ErrorCode::config);
  if (!bytes) throw fail(ErrorCode::config, path, ": there is no such file");
  ModelFile model;
  Fields fields(*bytes, path);
  while (fields.next()) {
    if (fields.number == 1) model.pieces.push_back(read_piece(fields.bytes, path));
    if (fields.number == 2) read_trainer(fields.bytes, path, model);
    if (fields.number == 3) read_normalizer(fields.bytes, path, model.normalizer);
    if (fields.number == 5) read_normalizer(fields.bytes, path, model.denormalizer.emplace());
  }
  check_pieces(model, fields);
  return model;
}

}  // namespace drivetrain::sentencepiece_models
