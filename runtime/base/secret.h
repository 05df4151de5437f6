// How two processes show each other that they belong to one run, without telling anybody what both know: a challenge
// and a response each way, HMAC-SHA256 over a secret of the run. A stranger, a rank of another run and a program that
// plays rank 0 learn nothing from it but that they are recognised.
//
//   rank   -> rank 0   hello: a word, which run, which rank, 32 random bytes
//   rank 0 -> rank     welcome: the word, a verdict, 32 random bytes, proof over all that
//   rank   -> rank 0   proof over all that
//
// What follows is neither hidden nor signed: as with any communicator, the network between hosts is trusted not to
// change what it carries. Pure functions but for random_bytes. Thread: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "internal.h"

namespace drivetrain {

inline constexpr size_t kNonceBytes = 32, kProofBytes = 32;
inline constexpr size_t kHelloBytes = 8 + 16 + 4 + kNonceBytes;
inline constexpr size_t kWelcomeBytes = 8 + 1 + kNonceBytes + kProofBytes;

// From the kernel. Throws Error(internal) where it gives none.
DRIVETRAIN_INTERNAL std::string random_bytes(size_t count);
DRIVETRAIN_INTERNAL std::string new_secret();  // 64 hexadecimal digits

enum class Verdict : uint8_t {
  welcome = 1,
  other_run,     // rank 0 here serves a run with another secret
  taken,         // that rank of the run is here already
  beyond_world,  // the run has not that many ranks
};

DRIVETRAIN_INTERNAL std::string hello_of(const std::string& secret, uint32_t rank);
struct Hello {
  bool our_run = false;
  uint32_t rank = 0;
};
// Of kHelloBytes; nothing: it is none.
std::optional<Hello> read_hello(const std::string& secret, std::string_view hello);

std::string welcome_to(const std::string& secret, std::string_view hello, Verdict verdict);
// Of kWelcomeBytes, answering `hello`. other_run carries no proof, the other verdicts do; nothing: it is no welcome, or
// its proof is wrong.
DRIVETRAIN_INTERNAL std::optional<Verdict> read_welcome(const std::string& secret, std::string_view hello,
                                                        std::string_view welcome);

// The rank's own proof, kProofBytes.
DRIVETRAIN_INTERNAL std::string proof_of(const std::string& secret, std::string_view hello, std::string_view welcome);
// In a time that does not tell where two of one length differ.
bool same_bytes(std::string_view a, std::string_view b);

}  // namespace drivetrain
