// A safetensors file opened for reading: names, dtypes and shapes at once, values tensor by tensor or by rows.
//
// The whole header is checked at `open` (size, UTF-8, JSON, offsets without hole or overlap, no duplicate name, exact
// file size); values are read when asked for, so that a rank takes only what it needs. Owned by the caller; the file
// stays open: one that is replaced meanwhile is read to its end, one that is cut short is an error. Thread: const calls
// from any thread. Errors: io, naming the file, the tensor and what is wrong.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <drivetrain/export.h>

DRIVETRAIN_CONTRACT(safetensors)

namespace drivetrain {

class DRIVETRAIN_API SafetensorsFile {
 public:
  static SafetensorsFile open(const std::string& path);
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;
  ~SafetensorsFile();

  const std::string& path() const;
  std::vector<std::string> names() const;                             // in file order
  std::vector<std::pair<std::string, std::string>> metadata() const;  // __metadata__, sorted
  bool contains(const std::string& name) const;
  at::ScalarType dtype(const std::string& name) const;
  std::vector<int64_t> shape(const std::string& name) const;

  at::Tensor tensor(const std::string& name) const;  // new contiguous memory on the CPU
  // Rows [first, first + count) of the first dimension.
  at::Tensor rows(const std::string& name, int64_t first, int64_t count) const;
  uint64_t data_bytes() const;  // of all tensors together

 private:
  struct Impl;
  explicit SafetensorsFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace drivetrain
