#include "documents.h"

#include <drivetrain/error.h>
#include <drivetrain/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <tuple>

namespace drivetrain::text {
namespace {

namespace fs = std::filesystem;

bool has_wildcard(const std::string& text) { return text.find_first_of("*?") != std::string::npos; }

Error unreadable(const std::string& path, const std::string& why) {
  return fail(ErrorCode::io, "dataset/text: ", path, " cannot be read: ", why);
}

// Calls use(path, path relative to root) for every regular file below root.
template <class Use>
void walk(const fs::path& root, const Use& use) {
  std::error_code error;
  fs::recursive_directory_iterator at(root, error), end;
  for (; !error && at != end; at.increment(error)) {
    std::error_code broken;  // a dangling link is no document
    if (at->is_regular_file(broken)) use(at->path(), at->path().lexically_relative(root).generic_string());
  }
  if (error) throw unreadable(root.string(), error.message());
}

// The folder before the first component with a wildcard, and the rest.
std::pair<fs::path, std::string> cut_glob(const std::string& glob) {
  fs::path root, pattern;
  for (const fs::path& part : fs::path(glob)) {
    if (pattern.empty() && !has_wildcard(part.string()))
      root /= part;
    else
      pattern /= part;
  }
  return {root.empty() ? fs::path(".") : root, pattern.generic_string()};
}

void find_entry(const std::string& entry, std::vector<Document>& found) {
  std::error_code error;
  const fs::file_status status = fs::status(entry, error);
  if (fs::is_directory(status))
    return walk(entry, [&](const fs::path& path, const std::string& relative) {
      found.push_back({relative, path.string()});
    });
  if (fs::exists(status) && !fs::is_regular_file(status))  // reading a pipe would wait for ever
    throw unreadable(entry, "it is neither a file nor a folder");
  if (fs::exists(status)) return found.push_back({fs::path(entry).filename().string(), entry});
  if (!has_wildcard(entry))
    throw fail(ErrorCode::config, "dataset/text: files names ", entry,
               ", which does not exist. Paths are relative to the config file");
  const auto [root, pattern] = cut_glob(entry);
  if (!fs::is_directory(root, error)) return;
  walk(root, [&](const fs::path& path, const std::string& relative) {
    if (matches(pattern.c_str(), relative.c_str())) found.push_back({relative, path.string()});
  });
}

std::string read_file(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) throw unreadable(path, std::strerror(errno));
  std::string bytes;
  file.seekg(0, std::ios::end);
  bytes.resize(static_cast<size_t>(std::max<std::streamoff>(0, file.tellg())));
  file.seekg(0);
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file || static_cast<size_t>(file.gcount()) != bytes.size()) throw unreadable(path, std::strerror(errno));
  return bytes;
}

}  // namespace

bool matches(const char* pattern, const char* path) {
  if (pattern[0] == '*' && pattern[1] == '*') {
    const char* rest = pattern + 2;
    // "**/x" also matches "x" itself.
    if (rest[0] == '/' && matches(rest + 1, path)) return true;
    for (const char* p = path;; ++p) {
      if (matches(rest, p)) return true;
      if (*p == 0) return false;
    }
  }
  if (*pattern == '*') {
    for (const char* p = path;; ++p) {
      if (matches(pattern + 1, p)) return true;
      if (*p == 0 || *p == '/') return false;
    }
  }
  if (*pattern == 0 || *path == 0) return *pattern == *path;
  return (*pattern == *path || (*pattern == '?' && *path != '/')) && matches(pattern + 1, path + 1);
}

std::vector<Document> find_documents(const std::vector<std::string>& entries) {
  std::vector<Document> found;
  for (const std::string& entry : entries) {
    const size_t before = found.size();
    find_entry(entry, found);
    if (found.size() == before)
      throw fail(ErrorCode::config, "dataset/text: ", entry, " matches no file. Paths are relative to the config file");
  }
  std::sort(found.begin(), found.end(), [](const Document& a, const Document& b) {
    return std::tie(a.relative, a.path) < std::tie(b.relative, b.path);
  });
  std::set<fs::path> seen;
  std::erase_if(found, [&](const Document& d) {
    std::error_code unknown;  // reading the file says why
    const fs::path real = fs::canonical(d.path, unknown);
    return !seen.insert(unknown ? fs::path(d.path) : real).second;
  });
  return found;
}

bool is_validation(int64_t seed, const std::string& relative) {
  return hash_name(concat(seed, ":", relative)) % 20 == 0;
}

void read_documents(const std::vector<Document>& documents, int64_t seed, Stream& train, Stream& validation) {
  for (const Document& document : documents) {
    const std::string bytes = read_file(document.path);
    if (bytes.empty()) continue;
    Stream& part = is_validation(seed, document.relative) ? validation : train;
    if (!part.files.empty()) part.bytes.push_back('\0');
    part.bytes += bytes;
    part.files.push_back(document.relative);
  }
}

}  // namespace drivetrain::text
