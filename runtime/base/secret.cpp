#include "base/secret.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include <drivetrain/error.h>

#include "base/hex.h"

namespace drivetrain {
namespace {

constexpr std::string_view kHelloWord = "DTstore1", kWelcomeWord = "DTrank01";

std::string keyed_digest(const std::string& secret, std::string_view purpose, std::string_view a,
                         std::string_view b = {}) {
  const std::string text = concat(purpose, '\0', a, b);
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  if (!HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
            reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest, &length) ||
      length != kProofBytes)
    throw fail(ErrorCode::internal, "OpenSSL's libcrypto gives no HMAC-SHA256");
  return {reinterpret_cast<const char*>(digest), length};
}

std::string run_mark(const std::string& secret) { return keyed_digest(secret, "drivetrain run", "").substr(0, 16); }

std::string bytes_of(uint32_t number) {
  std::string bytes;
  for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(number >> shift & 0xff);
  return bytes;
}

std::string welcome_proof(const std::string& secret, std::string_view hello, std::string_view unproved) {
  return keyed_digest(secret, "drivetrain rank 0", hello, unproved);
}

}  // namespace

std::string random_bytes(size_t count) {
  std::string bytes(count, '\0');
  for (size_t done = 0; done < count;) {
    const ssize_t n = getrandom(bytes.data() + done, count - done, 0);
    if (n < 0 && errno != EINTR)
      throw fail(ErrorCode::internal, "the kernel gives no random numbers: ", std::strerror(errno));
    if (n > 0) done += static_cast<size_t>(n);
  }
  return bytes;
}

std::string new_secret() { return hex_text(random_bytes(32)); }

bool same_bytes(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string hello_of(const std::string& secret, uint32_t rank) {
  return concat(kHelloWord, run_mark(secret), bytes_of(rank), random_bytes(kNonceBytes));
}

std::optional<Hello> read_hello(const std::string& secret, std::string_view hello) {
  if (hello.size() != kHelloBytes || !hello.starts_with(kHelloWord)) return std::nullopt;
  Hello read;
  read.our_run = same_bytes(hello.substr(8, 16), run_mark(secret));
  for (size_t i = 0; i < 4; ++i) read.rank |= uint32_t{static_cast<unsigned char>(hello[24 + i])} << (8 * i);
  return read;
}

std::string welcome_to(const std::string& secret, std::string_view hello, Verdict verdict) {
  const std::string unproved = concat(kWelcomeWord, static_cast<char>(verdict), random_bytes(kNonceBytes));
  const bool stranger = verdict == Verdict::other_run;
  return unproved + (stranger ? std::string(kProofBytes, '\0') : welcome_proof(secret, hello, unproved));
}

std::optional<Verdict> read_welcome(const std::string& secret, std::string_view hello, std::string_view welcome) {
  if (welcome.size() != kWelcomeBytes || !welcome.starts_with(kWelcomeWord)) return std::nullopt;
  const auto verdict = static_cast<Verdict>(welcome[8]);
  if (verdict == Verdict::other_run) return verdict;
  const std::string_view unproved = welcome.substr(0, kWelcomeBytes - kProofBytes);
  if (!same_bytes(welcome.substr(unproved.size()), welcome_proof(secret, hello, unproved))) return std::nullopt;
  return verdict;
}

std::string proof_of(const std::string& secret, std::string_view hello, std::string_view welcome) {
  return keyed_digest(secret, "drivetrain rank", hello, welcome);
}

}  // namespace drivetrain
