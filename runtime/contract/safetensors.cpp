// The reading side of safetensors: the header checked once, values read from the open file when they are asked for. Not
// mapped: a file that is cut short while it is in use would end the process by a signal instead of being an error.
#include <drivetrain/safetensors.h>

#include <ATen/ops/empty.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <unordered_map>

#include <drivetrain/error.h>

#include "base/input_file.h"
#include "base/printable.h"
#include "contract/safetensors_header.h"

namespace drivetrain {
namespace safetensors {

// A regular file that stays open, and how long it was then.
class WeightsFile {
 public:
  explicit WeightsFile(const std::string& path)
      : path_(path), file_(path, InputKind::file, "a safetensors file", ErrorCode::io) {}

  uint64_t size() const { return file_.size(); }

  // `what` is read: for the message.
  void read(const std::string& what, uint64_t from, void* to, uint64_t bytes) const {
    for (uint64_t done = 0; done < bytes;) {
      const ssize_t n =
          ::pread(file_.descriptor(), static_cast<char*>(to) + done, bytes - done, static_cast<off_t>(from + done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0)
        throw fail(ErrorCode::io, path_, ": ", what, " cannot be read at byte ", from + done, ": ",
                   std::strerror(errno));
      if (n == 0) throw cut_short(what, from + bytes);
      done += static_cast<uint64_t>(n);
    }
  }

 private:
  Error cut_short(const std::string& what, uint64_t end) const {
    struct stat info = {};
    ::fstat(file_.descriptor(), &info);
    return fail(ErrorCode::io, path_, ": was cut short while it was in use: it had ", file_.size(),
                " bytes when it was opened and has ", info.st_size, " now; ", what, " was to be read up to byte ", end,
                "\n   put the whole file back and start again");
  }

  const std::string path_;
  const InputFile file_;
};

}  // namespace safetensors

struct SafetensorsFile::Impl {
  explicit Impl(const std::string& p) : path(p), file(p) {
    std::string head(std::min<uint64_t>(file.size(), sizeof(uint64_t)), '\0');
    file.read("the header", 0, head.data(), head.size());
    head.resize(safetensors_header_bytes(path, head, file.size()));
    file.read("the header", 0, head.data(), head.size());
    header = parse_safetensors_header(path, head, file.size());
    for (const SafetensorsEntry& entry : header.entries) by_name.emplace(entry.name, &entry);
  }

  const std::string path;
  const safetensors::WeightsFile file;
  SafetensorsHeader header;
  std::unordered_map<std::string_view, const SafetensorsEntry*> by_name;

  const SafetensorsEntry& find(const std::string& name) const {
    const auto found = by_name.find(name);
    if (found != by_name.end()) return *found->second;
    throw fail(ErrorCode::config, path, ": has no tensor \"", shown(name), "\" (it has ", header.entries.size(),
               " tensors)\n   check that this is the file that was meant");
  }

  at::ScalarType dtype(const SafetensorsEntry& entry) const {
    if (entry.dtype->torch != at::ScalarType::Undefined) return entry.dtype->torch;
    throw fail(ErrorCode::config, path, ": tensor \"", shown(entry.name), "\" is of dtype ", entry.dtype->name,
               ", which cannot be used here\n   convert it to F32, BF16 or F16");
  }

  // `shape`: of what begins `offset` bytes into the tensor.
  at::Tensor read(const SafetensorsEntry& entry, const std::vector<int64_t>& shape, uint64_t offset) const {
    at::Tensor values = at::empty(shape, at::TensorOptions().dtype(dtype(entry)));
    if (values.nbytes() > 0)
      file.read(concat("tensor \"", shown(entry.name), "\""), header.data_offset + entry.begin + offset,
                values.mutable_data_ptr(), values.nbytes());
    return values;
  }
};

SafetensorsFile SafetensorsFile::open(const std::string& path) { return SafetensorsFile(std::make_unique<Impl>(path)); }

SafetensorsFile::SafetensorsFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;
SafetensorsFile::~SafetensorsFile() = default;

const std::string& SafetensorsFile::path() const { return impl_->path; }

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> list;
  for (const SafetensorsEntry& entry : impl_->header.entries) list.push_back(entry.name);
  return list;
}

std::vector<std::pair<std::string, std::string>> SafetensorsFile::metadata() const {
  return {impl_->header.metadata.begin(), impl_->header.metadata.end()};
}

bool SafetensorsFile::contains(const std::string& name) const { return impl_->by_name.count(name) > 0; }
at::ScalarType SafetensorsFile::dtype(const std::string& name) const { return impl_->dtype(impl_->find(name)); }
std::vector<int64_t> SafetensorsFile::shape(const std::string& name) const { return impl_->find(name).shape; }

at::Tensor SafetensorsFile::tensor(const std::string& name) const {
  const SafetensorsEntry& entry = impl_->find(name);
  return impl_->read(entry, entry.shape, 0);
}

at::Tensor SafetensorsFile::rows(const std::string& name, int64_t first, int64_t count) const {
  const SafetensorsEntry& entry = impl_->find(name);
  const int64_t there = entry.shape.empty() ? 0 : entry.shape[0];
  if (entry.shape.empty() || first < 0 || count < 0 || first > there || count > there - first) {
    throw fail(ErrorCode::config, path(), ": tensor \"", shown(name), "\" has ", there, " rows; rows ", first, " to ",
               first + count, " were wanted");
  }
  std::vector<int64_t> shape = entry.shape;
  shape[0] = count;
  const uint64_t row_bytes = there > 0 ? (entry.end - entry.begin) / static_cast<uint64_t>(there) : 0;
  return impl_->read(entry, shape, static_cast<uint64_t>(first) * row_bytes);
}

uint64_t SafetensorsFile::data_bytes() const {
  return impl_->header.entries.empty() ? 0 : impl_->header.entries.back().end;
}

}  // namespace drivetrain
