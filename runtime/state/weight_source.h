// Weights of a model under the names of some file format: a Hugging Face folder, or a checkpoint of another program.
// Thread: const calls from any thread. Errors: Error(config) for a name that is not there, Error(io) or
// Error(checkpoint) for damaged files.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace drivetrain {

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  virtual const std::string& path() const = 0;         // of the folder
  virtual std::vector<std::string> names() const = 0;  // of all tensors, sorted
  virtual bool contains(const std::string& name) const = 0;
  virtual std::string file(const std::string& name) const = 0;  // the file or folder that holds it
  virtual std::vector<int64_t> shape(const std::string& name) const = 0;
  virtual at::ScalarType dtype(const std::string& name) const = 0;
  // Rows [first, first + count) of the first dimension, contiguous on the CPU.
  virtual at::Tensor rows(const std::string& name, int64_t first, int64_t count) const = 0;
  // Odd, but no reason to stop. For the log.
  virtual const std::vector<std::string>& warnings() const = 0;
};

}  // namespace drivetrain
