// Arrays of integers in NumPy's format .npy, as Megatron-Core keeps its sample indices. Read at any place, not mapped.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data_file.h"

namespace drivetrain::megatron {

// Thread: const calls from any thread.
class NpyFile {
 public:
  // Error(io) for what is no array of i2, i4, u4 or i8 in C order.
  explicit NpyFile(const std::string& path);
  const std::string& path() const { return file_.path(); }
  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t count() const { return count_; }
  int64_t at(int64_t i) const;  // element i of all, row by row

 private:
  void parse(const std::string& header);
  template <class... Parts>
  Error wrong(const Parts&... parts) const;

  DataFile file_;
  int64_t begin_ = 0, count_ = 1, size_ = 0;
  bool is_signed_ = true;
  std::vector<int64_t> shape_;
};

// An array in memory, or in a file.
class IntArray {
 public:
  IntArray() = default;
  explicit IntArray(std::vector<int32_t> values) : narrow_(std::move(values)) {}
  explicit IntArray(std::vector<uint32_t> values) : unsigned_(std::move(values)) {}
  explicit IntArray(std::vector<int64_t> values) : wide_(std::move(values)) {}
  explicit IntArray(const std::string& path) : file_(std::make_shared<NpyFile>(path)) {}

  int64_t count() const;
  int64_t at(int64_t i) const;
  // Writes the array in memory with `columns` per row; 0: one dimension. First under another name, so that a file by
  // this name is whole. Error(io) if it cannot be written.
  void write(const std::string& path, int64_t columns) const;

 private:
  std::vector<int32_t> narrow_;
  std::vector<uint32_t> unsigned_;
  std::vector<int64_t> wide_;
  std::shared_ptr<const NpyFile> file_;
};

}  // namespace drivetrain::megatron
