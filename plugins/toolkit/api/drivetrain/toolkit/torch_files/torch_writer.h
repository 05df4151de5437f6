// Writing what torch.load reads: a pickle of plain data and tensors, in a zip archive. And pickles alone.
//
// Source: pytorch torch/serialization.py; pickle protocol 2. Records begin at multiples of 64 bytes. Equal content
// gives equal bytes. Thread: one. Errors: Error(io) for the disk.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <drivetrain/toolkit/files/durable.h>

namespace drivetrain {

// A value to be written. Value semantics; tensors are shared.
class TorchValue {
 public:
  using List = std::vector<TorchValue>;
  enum class Kind { none, boolean, integer, real, text, list, tuple, dict, tensor, global, call, object };

  TorchValue() = default;  // None
  TorchValue(bool value) : kind_(Kind::boolean), integer_(value) {}
  TorchValue(int value) : kind_(Kind::integer), integer_(value) {}
  TorchValue(int64_t value) : kind_(Kind::integer), integer_(value) {}
  TorchValue(double value) : kind_(Kind::real), real_(value) {}
  TorchValue(std::string text) : kind_(Kind::text), text_(std::move(text)) {}
  TorchValue(const char* text) : kind_(Kind::text), text_(text) {}
  // On the CPU and contiguous, or on the meta device where only the size is asked for.
  TorchValue(at::Tensor tensor) : kind_(Kind::tensor), tensor_(std::move(tensor)) {}
  static TorchValue list(List items) { return {Kind::list, std::move(items)}; }
  static TorchValue tuple(List items) { return {Kind::tuple, std::move(items)}; }
  static TorchValue dict(std::vector<std::pair<TorchValue, TorchValue>> members);
  // A class or function of Python.
  static TorchValue global(const std::string& module, const std::string& name);
  // What `callee`, a global, returns when it is called with the arguments.
  static TorchValue call(TorchValue callee, List arguments);
  // An object of a class, made without a call of its constructor, whose state is set.
  static TorchValue object(TorchValue of, TorchValue state);
  static TorchValue size(const std::vector<int64_t>& shape);  // torch.Size

 private:
  friend class PickleWriter;
  TorchValue(Kind kind, List items) : kind_(kind), items_(std::move(items)) {}

  Kind kind_ = Kind::none;
  int64_t integer_ = 0;
  double real_ = 0;
  std::string text_;
  List items_;  // of a dict: key, value, ...; of a call and an object: what is called, then the rest
  at::Tensor tensor_;
};

// Error(internal) if there is a tensor in it: those stand in archives.
std::string pickle_of(const TorchValue& value);

// One archive.
class TorchArchive {
 public:
  // `name`: of the archive, a plain word, which stands in front of its records' names.
  TorchArchive(const std::string& name, const TorchValue& root);

  uint64_t bytes() const { return bytes_; }
  // Writes it at `offset` of a file.
  void write(OutputFile& file, uint64_t offset) const;

 private:
  struct Record {
    std::string name;
    std::string text;   // the bytes, or
    at::Tensor tensor;  // whose bytes they are
    uint64_t header = 0, data = 0, bytes = 0;
  };
  std::string local_header(const Record& record, uint32_t crc) const;
  std::string directory(const std::vector<uint32_t>& crcs) const;

  std::vector<Record> records_;
  uint64_t directory_ = 0, bytes_ = 0;
};

// A file that torch.load reads, on the disk when this returns; its name is there after sync_folder.
void write_torch_file(const std::string& path, const TorchValue& root);

// "FloatStorage", "float32"; Error(checkpoint) for dtypes that torch.save has no storage for here.
std::string torch_storage_name(at::ScalarType dtype);
std::string torch_dtype_name(at::ScalarType dtype);

}  // namespace drivetrain
