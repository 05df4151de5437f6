// The reading side of safetensors: one private mapping of the whole file, checked once, then handed out in views.
#include <drivetrain/safetensors.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <unordered_map>

#include <drivetrain/error.h>

#include "state/safetensors_header.h"

namespace drivetrain {

struct SafetensorsMapping {
  ~SafetensorsMapping() {
    if (size > 0) ::munmap(data, size);
  }
  char* data = nullptr;
  size_t size = 0;
};

namespace {

// Private and writable: a careless in-place operation on a view changes memory of this process, never the file.
std::shared_ptr<const SafetensorsMapping> map_file(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    const ErrorCode code = errno == ENOENT || errno == ENOTDIR ? ErrorCode::config : ErrorCode::io;
    throw fail(code, path, ": cannot be opened: ", std::strerror(errno), "\n   check the path and its permissions");
  }
  auto mapping = std::make_shared<SafetensorsMapping>();
  struct stat info;
  const bool known = ::fstat(descriptor, &info) == 0;
  int code = errno;
  if (known && S_ISREG(info.st_mode) && info.st_size > 0) {
    const size_t size = static_cast<size_t>(info.st_size);
    void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, descriptor, 0);
    code = data == MAP_FAILED ? errno : 0;
    if (code == 0) mapping->data = static_cast<char*>(data), mapping->size = size;
  } else if (known) {
    code = 0;
  }
  ::close(descriptor);
  if (code != 0) throw fail(ErrorCode::io, path, ": cannot be read: ", std::strerror(code));
  if (!S_ISREG(info.st_mode)) throw fail(ErrorCode::config, path, ": is not a file; a safetensors file was wanted");
  return mapping;
}

}  // namespace

struct SafetensorsFile::Impl {
  std::string path;
  std::shared_ptr<const SafetensorsMapping> mapping;
  SafetensorsHeader header;
  std::unordered_map<std::string_view, const SafetensorsEntry*> by_name;

  const SafetensorsEntry& find(const std::string& name) const {
    const auto found = by_name.find(name);
    if (found != by_name.end()) return *found->second;
    throw fail(ErrorCode::config, path, ": has no tensor \"", name, "\" (it has ", header.entries.size(),
               " tensors)\n   check that this is the file that was meant");
  }

  at::ScalarType dtype(const SafetensorsEntry& entry) const {
    if (entry.dtype->torch != at::ScalarType::Undefined) return entry.dtype->torch;
    throw fail(ErrorCode::config, path, ": tensor \"", entry.name, "\" is of dtype ", entry.dtype->name,
               ", which cannot be used here\n   convert it to F32, BF16 or F16");
  }

  at::Tensor view(const SafetensorsEntry& entry) const {
    const auto options = at::TensorOptions().dtype(dtype(entry));
    if (entry.begin == entry.end) return at::empty(entry.shape, options);
    char* data = mapping->data + header.data_offset + entry.begin;
    if (reinterpret_cast<uintptr_t>(data) % options.dtype().itemsize() == 0) {
      return at::from_blob(
          data, entry.shape, [kept = mapping](void*) {}, options);
    }
    at::Tensor copy = at::empty(entry.shape, options);
    std::memcpy(copy.mutable_data_ptr(), data, entry.end - entry.begin);
    return copy;
  }
};

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  impl->mapping = map_file(path);
  impl->header = parse_safetensors_header(path, {impl->mapping->data, impl->mapping->size});
  for (const SafetensorsEntry& entry : impl->header.entries) impl->by_name.emplace(entry.name, &entry);
  return SafetensorsFile(std::move(impl));
}

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
at::Tensor SafetensorsFile::view(const std::string& name) const { return impl_->view(impl_->find(name)); }

at::Tensor SafetensorsFile::tensor(const std::string& name) const {
  // A misaligned tensor is copied twice; no writer that is in use makes one.
  return view(name).clone();
}

at::Tensor SafetensorsFile::rows(const std::string& name, int64_t first, int64_t count) const {
  const at::Tensor whole = view(name);
  const int64_t there = whole.dim() > 0 ? whole.size(0) : 0;
  if (first < 0 || count < 0 || first > there || count > there - first) {
    throw fail(ErrorCode::config, path(), ": tensor \"", name, "\" has ", there, " rows; rows ", first, " to ",
               first + count, " were wanted");
  }
  return whole.narrow(0, first, count).clone();
}

uint64_t SafetensorsFile::data_bytes() const {
  return impl_->header.entries.empty() ? 0 : impl_->header.entries.back().end;
}

}  // namespace drivetrain
