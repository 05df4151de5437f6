// Token files as Megatron-LM lays them out: PREFIX.bin has the tokens of all documents one after the other, PREFIX.idx
// says how they are stored and where each begins. All numbers are little-endian.
//
//   .idx: magic (9 bytes), version 1 (uint64), code of the type (uint8), number of sequences (uint64), number of
//   entries of the last list (uint64); then int32 tokens of each sequence, int64 byte in .bin at which each begins,
//   int64 sequence with which each document begins, ending with the number of sequences.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace drivetrain {

inline constexpr std::string_view kTokenFileMagic{"MMIDIDX\0\0", 9};
inline constexpr uint64_t kTokenFileVersion = 1;
inline constexpr uint64_t kTokenFileHeader = 9 + 8 + 1 + 8 + 8;

// A type of tokens. Whole numbers only: the format also knows float32 (7) and float64 (6).
struct TokenType {
  uint8_t code;
  const char* name;
  uint64_t bytes;
  bool is_signed;
};
inline constexpr TokenType kTokenTypes[] = {{1, "uint8", 1, false}, {2, "int8", 1, true},  {3, "int16", 2, true},
                                            {4, "int32", 4, true},  {5, "int64", 8, true}, {8, "uint16", 2, false}};
inline constexpr const TokenType& kUint16 = kTokenTypes[5];
inline constexpr const TokenType& kInt32 = kTokenTypes[3];

// Megatron-LM's choice for a vocabulary.
inline constexpr const TokenType& token_type_for(int64_t vocab_size) { return vocab_size < 65500 ? kUint16 : kInt32; }

inline std::string bin_path(const std::string& prefix) { return prefix + ".bin"; }
inline std::string idx_path(const std::string& prefix) { return prefix + ".idx"; }

}  // namespace drivetrain
