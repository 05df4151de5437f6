#include "base/trust.h"

#include <fcntl.h>
#include <grp.h>
#include <openssl/evp.h>
#include <pwd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <drivetrain/error.h>

#include "base/hex.h"
#include "base/printable.h"

namespace drivetrain {
namespace {

std::string name_of_user(uid_t user) {
  const passwd* const entry = getpwuid(user);
  return entry ? entry->pw_name : "";
}

// "user 1000 (ada)": what a message says of a user or a group.
std::string numbered(const char* what, unsigned id, const std::string& name) {
  return concat(what, " ", id, name.empty() ? "" : " (" + name + ")");
}

// Debian and others give each user a group of the same name that nobody else is in, and files that it may write. A
// group that is only some user's primary one may be everybody's ("users").
bool is_private_group(gid_t group, uid_t owner) {
  const passwd* const user = getpwuid(owner);
  if (!user || user->pw_gid != group) return false;
  const std::string name = user->pw_name;
  const struct group* const entry = getgrgid(group);
  if (!entry || name != entry->gr_name) return false;
  for (char** member = entry->gr_mem; *member; ++member)
    if (name != *member) return false;
  return true;
}

bool has_access_list(const std::string& path) {
  return getxattr(path.c_str(), "system.posix_acl_access", nullptr, 0) > 0;
}

std::string facts_text(const struct stat& facts) {
  const group* const entry = getgrgid(facts.st_gid);
  char mode[8];
  std::snprintf(mode, sizeof mode, "%04o", facts.st_mode & 07777u);
  return concat("mode ", mode, ", ", numbered("user", facts.st_uid, name_of_user(facts.st_uid)), ", ",
                numbered("group", facts.st_gid, entry ? entry->gr_name : ""));
}

std::string trust_problem_of(const std::filesystem::path& file) {
  const std::string path = one_line(file.string());
  struct stat facts {};
  if (stat(file.c_str(), &facts) != 0) return concat(path, " cannot be read: ", std::strerror(errno));
  if (facts.st_uid != 0 && facts.st_uid != geteuid())
    return concat(path, " belongs to ", numbered("user", facts.st_uid, name_of_user(facts.st_uid)),
                  ", neither to root nor to you (", facts_text(facts),
                  ")\n  remedy  chown it to you, or use a copy of yours");
  const bool roots_sticky_folder = S_ISDIR(facts.st_mode) && (facts.st_mode & S_ISVTX) && facts.st_uid == 0;
  if (roots_sticky_folder) return "";
  if (facts.st_mode & S_IWOTH)
    return concat(path, " is writable by others (", facts_text(facts), ")\n  remedy  chmod o-w ", path);
  if (!(facts.st_mode & S_IWGRP)) return "";
  if (has_access_list(file))
    return concat(path, " has an access list by which others may write (", facts_text(facts),
                  ")\n  remedy  setfacl -b ", path, " && chmod g-w ", path);
  if (is_private_group(facts.st_gid, facts.st_uid) || is_private_group(facts.st_gid, geteuid())) return "";
  return concat(path, " is writable by a group that others may be in (", facts_text(facts), ")\n  remedy  chmod g-w ",
                path);
}

std::string trust_problem_upwards(const std::filesystem::path& path, FolderTrust& looked_at) {
  const std::string why = trust_problem_of(path);
  const std::filesystem::path folder = path.parent_path();
  if (!why.empty() || folder == path) return why;
  const auto known = looked_at.find(folder);
  if (known != looked_at.end()) return known->second;
  return looked_at[folder] = trust_problem_upwards(folder, looked_at);
}

}  // namespace

std::string trust_problem(const std::string& path) {
  FolderTrust none;
  return trust_problem(path, none);
}

std::string trust_problem(const std::string& path, FolderTrust& looked_at) {
  std::error_code failed;
  const std::filesystem::path given = std::filesystem::absolute(path, failed).lexically_normal();
  const std::filesystem::path real = std::filesystem::canonical(path, failed);
  if (failed) return concat(path, " cannot be read: ", failed.message());
  const std::string why = trust_problem_upwards(real, looked_at);
  return why.empty() && real != given ? trust_problem_upwards(given, looked_at) : why;
}

std::string sha256(const std::string& bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest, &length, EVP_sha256(), nullptr) != 1)
    throw fail(ErrorCode::internal, "OpenSSL's libcrypto gives no SHA-256");
  return hex_text({reinterpret_cast<const char*>(digest), length});
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
