#include "documents.h"

#include <drivetrain/error.h>
#include <drivetrain/random.h>
#include <drivetrain/toolkit/text/packed_file.h>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

namespace drivetrain::text {
namespace {

namespace fs = std::filesystem;

constexpr int kAnyDepth = std::numeric_limits<int>::max();
constexpr int64_t kMostStars = 64;
constexpr int64_t kMostSeen = 1'000'000;  // a corpus of one file per document has fewer; a whole disk has more

bool has_wildcard(const std::string& text) { return text.find_first_of("*?") != std::string::npos; }

Error unreadable(const std::string& path, const std::string& why) {
  return fail(ErrorCode::io, "dataset/text: ", path, " cannot be read: ", why);
}

// Calls use(path, path relative to root) for every regular file below root, at most `depth` folders down. Links to
// folders are not followed, so that none leads in a circle. `entry`: what the config said, for the message.
template <class Use>
void walk(const fs::path& root, int depth, const std::string& entry, const Use& use) {
  std::error_code error;
  fs::recursive_directory_iterator at(root, error), end;
  const size_t prefix = (root / "").native().size();
  for (int64_t seen = 0; !error && at != end; at.increment(error)) {
    if (++seen > kMostSeen)
      throw fail(ErrorCode::config, "dataset/text: ", entry, " leads through more than ", kMostSeen,
                 " files and folders below ", root.string(), ". Name the folders that hold the text");
    if (at.depth() >= depth) at.disable_recursion_pending();
    std::error_code broken;  // a dangling link is no document
    if (at->is_regular_file(broken)) use(at->path(), at->path().native().substr(prefix));
  }
  if (error) throw unreadable(entry, concat("a folder below ", root.string(), ": ", error.message()));
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

// A glob as a machine with a place per character. A path moves a set of places on, each at most once per character, so
// that no pattern takes long however many stars it has.
class Pattern {
 public:
  explicit Pattern(const std::string& glob) : glob_(glob), taken_(glob.size() + 1) {
    // What stands twice says nothing more.
    for (const auto& [twice, once] : {std::pair("***", "**"), std::pair("**/**/", "**/")})
      for (size_t at = 0; (at = glob_.find(twice)) != std::string::npos;) glob_.replace(at, std::strlen(twice), once);
  }

  bool matches(const char* path) const {
    std::vector<size_t> now, next;
    add(now, 0);
    for (; *path && !now.empty(); ++path) {
      forget(now);
      for (const size_t at : now) {
        const bool star = character(at) == '*', across = star && character(at + 1) == '*';
        if (across || (star && *path != '/')) add(next, at, true);  // the star takes it
        if (at < glob_.size() && !star && (glob_[at] == *path || (glob_[at] == '?' && *path != '/'))) add(next, at + 1);
      }
      now.swap(next);
      next.clear();
    }
    forget(now);
    return !*path && std::find(now.begin(), now.end(), glob_.size()) != now.end();
  }

 private:
  char character(size_t at) const { return at < glob_.size() ? glob_[at] : '\0'; }

  // The place, and those behind stars that take nothing. "**/x" also matches "x" itself.
  // But not in the middle of a name: a star that has taken something is `used`.
  void add(std::vector<size_t>& places, size_t at, bool used = false) const {
    const bool star = character(at) == '*', across = star && character(at + 1) == '*';
    if (across && !used && character(at + 2) == '/') add(places, at + 3);
    if (taken_[at]) return;
    taken_[at] = 1;
    places.push_back(at);
    if (star) add(places, at + (across ? 2 : 1));
  }
  void forget(const std::vector<size_t>& places) const {
    for (const size_t at : places) taken_[at] = 0;
  }

  std::string glob_;
  mutable std::vector<char> taken_;  // places of the set that is being made
};

void find_entry(const std::string& entry, std::vector<Document>& found) {
  std::error_code error;
  const fs::file_status status = fs::status(entry, error);
  if (fs::is_directory(status))
    return walk(entry, kAnyDepth, entry, [&](const fs::path& path, const std::string& relative) {
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
  const int64_t stars = std::count(pattern.begin(), pattern.end(), '*');
  if (stars > kMostStars)
    throw fail(ErrorCode::config, "dataset/text: files has a pattern with ", stars, " stars, of which ", kMostStars,
               " may be: ", pattern.substr(0, 100), ". ** stands for folders at any depth");
  // Without ** a pattern says how many folders deep its files lie.
  const bool any_depth = pattern.find("**") != std::string::npos;
  const int depth = any_depth ? kAnyDepth : static_cast<int>(std::count(pattern.begin(), pattern.end(), '/'));
  const Pattern wanted(pattern);
  walk(root, depth, entry, [&](const fs::path& path, const std::string& relative) {
    if (wanted.matches(relative.c_str())) found.push_back({relative, path.string()});
  });
}

uint64_t host_memory() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// `room`: what may still be read.
std::string read_file(const std::string& path, uint64_t room) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) throw unreadable(path, std::strerror(errno));
  std::string bytes;
  file.seekg(0, std::ios::end);
  const auto size = static_cast<size_t>(std::max<std::streamoff>(0, file.tellg()));
  if (size > room)
    throw fail(ErrorCode::out_of_memory, "dataset/text: ", path, " has ", size,
               " bytes; with the files before it that is more than the ", host_memory(),
               " bytes of memory of this host, in which text is kept. Name fewer files");
  bytes.resize(size);
  file.seekg(0);
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (const auto found = static_cast<size_t>(file.gcount()); found != bytes.size())
    throw unreadable(path, errno != 0 ? std::strerror(errno)
                                      : concat("it was cut short meanwhile, from ", size, " bytes to ", found));
  refuse_packed(bytes, "dataset/text", path);
  return bytes;
}

}  // namespace

bool matches(const char* pattern, const char* path) { return Pattern(pattern).matches(path); }

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
  uint64_t room = host_memory();
  for (const Document& document : documents) {
    const std::string bytes = read_file(document.path, room);
    room -= bytes.size();
    if (bytes.empty()) continue;
    Stream& part = is_validation(seed, document.relative) ? validation : train;
    if (!part.files.empty()) part.bytes.push_back('\0');
    part.begins.push_back(static_cast<int64_t>(part.bytes.size()));
    part.bytes += bytes;
    part.files.push_back(document.relative);
  }
}

}  // namespace drivetrain::text
