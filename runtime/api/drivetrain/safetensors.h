// A safetensors file that is open for reading: names, dtypes and shapes are read at `open`, values tensor by tensor or
// by rows.
//
// `open` checks the whole header (size, UTF-8, JSON, offsets without gap or overlap, no duplicate name, exact file
// size). `tensor` and `rows` read values, so that a rank reads only what it needs. Owned by the caller. The file stays
// open: if another file takes its name meanwhile, the old one is still read; if it is truncated, that is an error.
// Thread: const calls from any thread. Errors: Error(io) naming the file, the tensor and the problem;
// Error(config) for a name that is not there, a dtype that LibTorch lacks, or rows out of range.
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

  // The whole tensor in new contiguous memory on the CPU.
  at::Tensor tensor(const std::string& name) const;
  // The same for rows [first, first + count) of the first dimension.
  at::Tensor rows(const std::string& name, int64_t first, int64_t count) const;
  uint64_t data_bytes() const;  // of all tensors together

 private:
  struct Impl;
  explicit SafetensorsFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace drivetrain
