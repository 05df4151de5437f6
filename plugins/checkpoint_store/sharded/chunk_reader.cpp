#include "chunk_reader.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include <drivetrain/toolkit/text.h>

#include "layout.h"
#include "rank_writer.h"

namespace drivetrain::sharded {
namespace {

constexpr size_t kKept = 8;            // chunks that nobody reads now
constexpr uint64_t kAhead = 8;         // chunks that the system may read while one is being used
constexpr uint64_t kPart = 256 << 10;  // is still in the processor's cache when its digest is taken
constexpr uint64_t kHeaderMost = uint64_t{100} << 20;

}  // namespace

ChunkReader::~ChunkReader() {
  for (const File& file : files_)
    if (file.descriptor >= 0) calls_.close(file.descriptor);
}

void ChunkReader::add(const std::string& path, RankIndex index) {
  File& file = files_.emplace_back();
  file.path = path, file.index = std::move(index);
  file.descriptor = calls_.open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
  if (file.descriptor < 0) {
    if (errno != ENOENT) throw file_error(path, "open it for reading", errno);
    file.problem = concat(path, ": is missing; it should be the file of ", file.index.identity.text());
    return;
  }
  file.problem = size_problem(file);
}

Chunk ChunkReader::read(size_t number, uint64_t offset, uint64_t until) const {
  const File& file = files_.at(number);
  if (!file.problem.empty()) throw Error(ErrorCode::checkpoint, file.problem);
  const uint64_t size = file.index.chunk_bytes;
  Chunk chunk = take(number, offset / size);
  if (chunk.filled) return chunk;
  read_ahead(file, chunk.end, until);
  load(file, chunk, check_);
  return chunk;
}

void ChunkReader::read_whole(size_t number, uint64_t offset, uint64_t until, char* into) const {
  const File& file = files_.at(number);
  if (!file.problem.empty()) throw Error(ErrorCode::checkpoint, file.problem);
  const uint64_t end = std::min(file.index.bytes, offset + file.index.chunk_bytes);
  read_ahead(file, end, until);
  load(file, offset, end, into, check_);
}

void ChunkReader::read_ahead(const File& file, uint64_t chunk_end, uint64_t until) const {
  const uint64_t ahead = std::min(until, chunk_end + kAhead * file.index.chunk_bytes);
  if (ahead > chunk_end)
    ::posix_fadvise(file.descriptor, static_cast<off_t>(chunk_end), static_cast<off_t>(ahead - chunk_end),
                    POSIX_FADV_WILLNEED);
}

void ChunkReader::done(Chunk chunk) const {
  const std::lock_guard lock(mutex_);
  if (free_.size() >= kKept) free_.erase(free_.begin());
  free_.push_back(std::move(chunk));
}

// The chunk itself if it is there, or the memory of the one that was used longest ago.
Chunk ChunkReader::take(size_t number, uint64_t wanted) const {
  const RankIndex& index = files_[number].index;
  Chunk chunk;
  {
    const std::lock_guard lock(mutex_);
    auto at = std::find_if(free_.begin(), free_.end(),
                           [&](const Chunk& c) { return c.filled && c.file == number && c.number == wanted; });
    const bool there = at != free_.end();
    if (!there && free_.size() >= kKept) at = free_.begin();
    if (at != free_.end()) {
      chunk = std::move(*at);
      free_.erase(at);
    }
    if (there) return chunk;
  }
  if (chunk.capacity < index.chunk_bytes) chunk.memory = aligned_memory(index.chunk_bytes);
  chunk.capacity = std::max(chunk.capacity, index.chunk_bytes);
  chunk.file = number, chunk.number = wanted, chunk.filled = false;
  chunk.begin = wanted * index.chunk_bytes, chunk.end = std::min(index.bytes, chunk.begin + index.chunk_bytes);
  return chunk;
}

void ChunkReader::load(const File& file, Chunk& chunk, bool check) const {
  chunk.filled = false;
  load(file, chunk.begin, chunk.end, chunk.memory.get(), check);
  chunk.filled = true;
}

// A chunk in parts, each under the digest as soon as it is there.
void ChunkReader::load(const File& file, uint64_t begin, uint64_t end, char* into, bool check) const {
  DigestStream digest;
  for (uint64_t at = begin; at < end; at += kPart) {
    const uint64_t bytes = std::min(kPart, end - at);
    const uint64_t found = read_bytes(file, into + (at - begin), at, at + bytes);
    if (found < bytes) throw damage(file, begin, end, at - begin + found, "");
    if (check) digest.add(into + (at - begin), bytes);
  }
  if (!check) return;
  const Digest found = digest.digest();
  if (found != file.index.chunks.at(begin / file.index.chunk_bytes))
    throw damage(file, begin, end, end - begin, found.text());
}

uint64_t ChunkReader::read_bytes(const File& file, char* into, uint64_t begin, uint64_t end) const {
  uint64_t at = begin;
  while (at < end) {
    const int64_t found = calls_.pread(file.descriptor, into + (at - begin), end - at, at);
    if (found < 0 && errno == EINTR) continue;
    if (found < 0) throw file_error(file.path, concat("read bytes ", at, " to ", end), errno);
    if (found == 0) break;
    at += static_cast<uint64_t>(found);
  }
  return at - begin;
}

std::string ChunkReader::size_problem(const File& file) const {
  struct stat status = {};
  if (::fstat(file.descriptor, &status) != 0) throw file_error(file.path, "look at it", errno);
  if (!S_ISREG(status.st_mode)) return file.path + ": is no file";
  const auto bytes = static_cast<uint64_t>(status.st_size);
  if (bytes == file.index.bytes) return "";
  if (const std::string other = foreign(file); !other.empty()) return other;
  return concat(file.path, ": has ", bytes, " bytes instead of ", file.index.bytes,
                bytes < file.index.bytes ? ": it was cut short at byte " : ": something was written behind byte ",
                std::min(bytes, file.index.bytes));
}

// What the file says to be, if that is not what it should be; empty: the file of the index, as far as one can tell.
std::string ChunkReader::foreign(const File& file) const {
  std::string head(8, '\0');
  try {
    if (read_bytes(file, head.data(), 0, 8) < 8) return "";
    uint64_t length = 0;
    std::copy_n(head.data(), 8, reinterpret_cast<char*>(&length));
    if (length > std::min(kHeaderMost, file.index.bytes)) throw fail(ErrorCode::config, "its header is too long");
    head.resize(8 + length);
    if (read_bytes(file, head.data(), 0, head.size()) < head.size()) return "";
    const SaveIdentity found = identity_in_header(head), &wanted = file.index.identity;
    if (found == wanted) return "";
    const char* const what = found.rank != wanted.rank                              ? "another rank"
                             : found.step != wanted.step || found.tag != wanted.tag ? "another tag"
                                                                                    : "another save";
    return concat(file.path, ": is the file of ", what, ": wanted ", wanted.text(), "; found ", found.text());
  } catch (const Error& e) {
    if (e.code() != ErrorCode::config) throw;
    return concat(file.path, ": its header (byte 0) is none of this store: the file is foreign or damaged: ",
                  first_line(e.what()));
  }
}

// `found_bytes`: how many of the chunk's there are; `digest`: theirs, if that is what differs.
Error ChunkReader::damage(const File& file, uint64_t begin, uint64_t end, uint64_t found_bytes,
                          const std::string& digest) const {
  const std::string other = foreign(file);
  const bool header_tells = other.find("foreign or damaged") == std::string::npos;
  if (!other.empty() && (header_tells || digest.empty())) return Error(ErrorCode::checkpoint, other);
  const std::string place = other.empty() ? file.path + ": " : other + "; ";
  if (digest.empty())
    return fail(ErrorCode::checkpoint, place, "ends at byte ", begin + found_bytes, " instead of ", file.index.bytes,
                ": it was cut short");
  return fail(ErrorCode::checkpoint, place, "bytes ", begin, " to ", end,
              " are damaged or were edited: expected the digest ",
              file.index.chunks.at(begin / file.index.chunk_bytes).text(), ", found ", digest);
}

std::vector<FileProblem> ChunkReader::problems(size_t number) const {
  const File& file = files_.at(number);
  if (!file.problem.empty()) return {{file.problem, 0, file.index.bytes}};
  if (const std::string size = size_problem(file); !size.empty()) return {{size, 0, file.index.bytes}};
  std::vector<FileProblem> found;
  for (uint64_t at = 0; at < file.index.bytes; at += file.index.chunk_bytes) {
    Chunk chunk = take(number, at / file.index.chunk_bytes);
    try {
      load(file, chunk, true);
    } catch (const Error& e) {
      found.push_back({first_line(e.what()), chunk.begin, chunk.end});
    }
    done(std::move(chunk));
  }
  return found;
}

}  // namespace drivetrain::sharded
