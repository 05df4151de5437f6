#include "data_tools/unpacked_file.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include <drivetrain/error.h>

#include "base/suggest.h"
#include "data_tools/block_file.h"

namespace drivetrain {
namespace {

constexpr uint64_t kPackedBlock = uint64_t{1} << 18;
constexpr int kGzipWindow = 15 + 16;  // zlib's largest window, and gzip's header instead of its own

}  // namespace

Packing packing_of(const std::string& path) {
  const std::string ending = lower_case(std::filesystem::path(path).extension().string());
  return ending == ".gz" ? Packing::gzip : ending == ".zst" ? Packing::zstd : Packing::none;
}

// A stream of one of the two libraries over the blocks of the file.
struct UnpackedFile::Impl {
  explicit Impl(const std::string& path) : file(path), block(kPackedBlock) {}
  virtual ~Impl() = default;
  // Unpacks from [next, next + left) to `to`, and moves on in both. Returns whether a member or frame ended there.
  virtual bool step(char*& to, uint64_t& room) = 0;

  Error damaged(const std::string& what) const {
    return fail(ErrorCode::io, file.path(), ": cannot be unpacked at byte ", at - left, ": ", what);
  }
  bool fill() {
    if (left > 0) return true;
    left = std::min(kPackedBlock, file.size() - at);
    if (left > 0) file.read(at, block.data(), left);
    next = block.data(), at += left;
    return left > 0;
  }
  uint64_t read(char* to, uint64_t most) {
    uint64_t room = most;
    while (room > 0) {
      const bool more = fill();
      if (!more && !inside) break;
      const uint64_t before = room + left;
      inside = !step(to, room);
      if (!more && inside && before == room + left) throw damaged("it ends too soon");
    }
    return most - room;
  }

  const OpenFile file;
  std::vector<char> block;
  const char* next = nullptr;
  uint64_t left = 0, at = 0;  // of the block; of the file, behind the block
  bool inside = false;        // a member or frame has begun and not ended
};

namespace {

class Gzip final : public UnpackedFile::Impl {
 public:
  explicit Gzip(const std::string& path) : Impl(path) {
    if (inflateInit2(&stream_, kGzipWindow) != Z_OK)
      throw fail(ErrorCode::out_of_memory, path, ": no memory to unpack it");
  }
  ~Gzip() override { inflateEnd(&stream_); }
  bool step(char*& to, uint64_t& room) override {
    if (!inside) inflateReset(&stream_);
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(next)), stream_.avail_in = static_cast<uInt>(left);
    stream_.next_out = reinterpret_cast<Bytef*>(to), stream_.avail_out = static_cast<uInt>(room);
    const int code = inflate(&stream_, Z_NO_FLUSH);
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
      throw damaged(stream_.msg ? stream_.msg : "it is no gzip");
    next += left - stream_.avail_in, left = stream_.avail_in;
    to += room - stream_.avail_out, room = stream_.avail_out;
    return code == Z_STREAM_END;
  }

 private:
  z_stream stream_ = {};
};

class Zstd final : public UnpackedFile::Impl {
 public:
  explicit Zstd(const std::string& path) : Impl(path), stream_(ZSTD_createDStream()) {
    if (!stream_) throw fail(ErrorCode::out_of_memory, path, ": no memory to unpack it");
  }
  ~Zstd() override { ZSTD_freeDStream(stream_); }
  bool step(char*& to, uint64_t& room) override {
    ZSTD_inBuffer in{next, left, 0};
    ZSTD_outBuffer out{to, room, 0};
    const size_t code = ZSTD_decompressStream(stream_, &out, &in);
    if (ZSTD_isError(code)) throw damaged(ZSTD_getErrorName(code));
    next += in.pos, left -= in.pos;
    to += out.pos, room -= out.pos;
    return code == 0;
  }

 private:
  ZSTD_DStream* stream_;
};

}  // namespace

UnpackedFile::UnpackedFile(const std::string& path, Packing packing) {
  if (packing == Packing::gzip)
    impl_ = std::make_unique<Gzip>(path);
  else
    impl_ = std::make_unique<Zstd>(path);
}

UnpackedFile::~UnpackedFile() = default;

uint64_t UnpackedFile::read(std::string& to, uint64_t most) {
  const size_t before = to.size();
  to.resize(before + std::min(most, kPackedBlock));
  const uint64_t got = impl_->read(to.data() + before, to.size() - before);
  to.resize(before + got);
  return got;
}

}  // namespace drivetrain
