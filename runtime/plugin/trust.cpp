#include "plugin/trust.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest, &length, EVP_sha256(), nullptr) != 1)
    throw fail(ErrorCode::internal, "OpenSSL's libcrypto gives no SHA-256");
  std::string hex;
  for (unsigned int i = 0; i < length; ++i)
    for (const int shift : {4, 0}) hex += "0123456789abcdef"[digest[i] >> shift & 15];
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
