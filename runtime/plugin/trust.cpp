#include "plugin/trust.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

std::string distrust_one(const std::filesystem::path& path) {
  struct stat facts {};
  if (stat(path.c_str(), &facts) != 0) return concat(path.string(), " cannot be read: ", std::strerror(errno));
  const bool roots_sticky_folder = S_ISDIR(facts.st_mode) && (facts.st_mode & S_ISVTX) && facts.st_uid == 0;
  if ((facts.st_mode & S_IWOTH) && !roots_sticky_folder)
    return concat(path.string(), " is writable by others (chmod o-w)");
  if (facts.st_uid != 0 && facts.st_uid != geteuid())
    return concat(path.string(), " belongs to user ", facts.st_uid, ", neither to root nor to you");
  return "";
}

std::string distrust_upwards(std::filesystem::path path) {
  for (;; path = path.parent_path()) {
    const std::string why = distrust_one(path);
    if (!why.empty() || path == path.parent_path()) return why;
  }
}

// FIPS 180-4. The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr uint32_t kSha256Constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

void sha256_block(uint32_t (&h)[8], const unsigned char* block) {
  uint32_t w[64];
  for (int i = 0; i < 16; ++i)
    w[i] = uint32_t{block[4 * i]} << 24 | block[4 * i + 1] << 16 | block[4 * i + 2] << 8 | block[4 * i + 3];
  for (int i = 16; i < 64; ++i) {
    const uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) + w[i - 7] +
           (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
  }
  uint32_t s[8];
  std::memcpy(s, h, sizeof s);
  for (int i = 0; i < 64; ++i) {
    const uint32_t a = s[0], e = s[4];
    const uint32_t t1 = s[7] + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & s[5]) ^ (~e & s[6])) +
                        kSha256Constants[i] + w[i];
    const uint32_t t2 =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
    std::memmove(s + 1, s, 7 * sizeof *s);
    s[0] = t1 + t2;
    s[4] += t1;
  }
  for (int i = 0; i < 8; ++i) h[i] += s[i];
}

}  // namespace

std::string distrust(const std::string& path) {
  std::error_code failed;
  const std::filesystem::path given = std::filesystem::absolute(path, failed).lexically_normal();
  const std::filesystem::path real = std::filesystem::canonical(path, failed);
  if (failed) return concat(path, " cannot be read: ", failed.message());
  const std::string why = distrust_upwards(real);
  return why.empty() && real != given ? distrust_upwards(given) : why;
}

std::string sha256(const std::string& bytes) {
  uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::string padded = bytes + '\x80';
  padded.append((120 - padded.size() % 64) % 64, '\0');
  for (int shift = 56; shift >= 0; shift -= 8) padded += static_cast<char>(uint64_t{bytes.size()} * 8 >> shift);
  for (size_t at = 0; at < padded.size(); at += 64)
    sha256_block(h, reinterpret_cast<const unsigned char*>(padded.data()) + at);
  std::string hex;
  for (const uint32_t word : h)
    for (int shift = 28; shift >= 0; shift -= 4) hex += "0123456789abcdef"[word >> shift & 15];
  return hex;
}

std::string read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (!in) throw fail(ErrorCode::plugin, path, " cannot be read");
  return bytes;
}

SealedCopy seal(const std::string& path) {
  const std::string bytes = read_bytes(path);
  const std::string name = std::filesystem::path(path).filename();
  const int fd = memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) throw fail(ErrorCode::plugin, path, " cannot be copied into memory: ", std::strerror(errno));
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno != EINTR)
      throw fail(ErrorCode::plugin, path, " cannot be copied into memory: ", std::strerror(errno));
    if (n > 0) done += n;
  }
  if (fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) != 0)
    throw fail(ErrorCode::plugin, path, " cannot be sealed in memory: ", std::strerror(errno));
  return {concat("/proc/self/fd/", fd), sha256(bytes)};
}

}  // namespace drivetrain
