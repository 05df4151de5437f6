// What a model's file says: SentencePiece's message `ModelProto` in the encoding of Protocol Buffers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace drivetrain::sentencepiece_models {

enum class PieceType { normal = 1, unknown, control, user_defined, unused, byte };
enum class ModelType { unigram = 1, bpe, word, character };

struct Piece {
  std::string text;
  float score = 0;
  PieceType type = PieceType::normal;
};

// How texts become what pieces are looked for in.
struct NormalizerSpec {
  std::string rules;  // "precompiled_charsmap"
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
};

struct ModelFile {
  std::vector<Piece> pieces;  // by id
  ModelType type = ModelType::unigram;
  bool treat_whitespace_as_suffix = false;
  bool byte_fallback = false;
  std::string unk_surface = " \xE2\x81\x87 ";
  std::string bos = "<s>", eos = "</s>", pad = "<pad>";
  NormalizerSpec normalizer;
  std::optional<NormalizerSpec> denormalizer;

  int32_t unk = -1;                  // the piece of type unknown
  std::vector<int32_t> byte_pieces;  // by byte; empty without byte_fallback
};

// Error(config) naming the file and what is wrong with it; Error(io) for the disk.
ModelFile read_model_file(const std::string& path);

// The byte that a piece such as <0x0A> stands for; -1 if it is none.
int byte_of_piece(const std::string& text);

}  // namespace drivetrain::sentencepiece_models
