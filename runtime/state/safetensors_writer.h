// Writing safetensors: the layout is fixed first, then tensors come one at a time, in any order.
//
// Layout of the reference writer: larger dtypes first, then by name; the data begin at a multiple of 8; metadata keys
// are sorted, so equal content gives equal bytes. Memory: one tensor at a time. Thread: one. Errors: Error(io) with
// path, bytes wanted and free when the disk is full (nothing is left behind); internal for tensors that do not fit
// their announcement.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "contract/safetensors_header.h"
#include "internal.h"
#include "state/new_file.h"

namespace drivetrain {

struct SafetensorsItem {
  std::string name;
  at::ScalarType dtype = at::ScalarType::Float;
  std::vector<int64_t> shape;
};

class DRIVETRAIN_INTERNAL SafetensorsWriter {
 public:
  SafetensorsWriter(const std::string& path, const std::vector<SafetensorsItem>& items,
                    const SafetensorsMetadata& metadata);
  ~SafetensorsWriter();

  void put(const std::string& name, const at::Tensor& tensor);  // any device and strides; dtype and shape as announced
  void finish();                                                // all items are there: the file appears at `path`

 private:
  struct Place {
    SafetensorsEntry entry;
    bool written = false;
  };
  const std::string path_;
  std::unordered_map<std::string, Place> places_;
  uint64_t data_offset_ = 0;
  std::unique_ptr<NewFile> file_;
};

}  // namespace drivetrain
