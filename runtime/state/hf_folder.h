// A Hugging Face model folder as one lookup from name to tensor: model.safetensors, or shards with
// model.safetensors.index.json. The index is checked against every shard before anything is read. Pickle files are not
// read.
//
// Thread: const calls from any thread. Errors: Error(config) for what is missing or contradictory, all problems of the
// index at once; Error(io) for a damaged file.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <drivetrain/safetensors.h>
#include <drivetrain/value.h>

#include "internal.h"
#include "state/weight_source.h"

namespace drivetrain {

class DRIVETRAIN_INTERNAL HfFolder final : public WeightSource {
 public:
  explicit HfFolder(const std::string& folder);
  // One file of weights in a folder of another kind (an adapter's).
  HfFolder(const std::string& folder, const std::string& file);

  // Whether a folder holds weights in safetensors under the names of such a folder.
  static bool has_weights(const std::string& folder);

  const std::string& path() const override { return folder_; }
  Value config() const;  // config.json
  std::vector<std::string> names() const override;
  // The file that holds a tensor, nullptr if none does.
  const SafetensorsFile* file_of(const std::string& name) const;
  bool contains(const std::string& name) const override { return file_of(name) != nullptr; }
  std::string file(const std::string& name) const override { return checked(name).path(); }
  std::vector<int64_t> shape(const std::string& name) const override { return checked(name).shape(name); }
  at::ScalarType dtype(const std::string& name) const override { return checked(name).dtype(name); }
  at::Tensor rows(const std::string& name, int64_t first, int64_t count) const override {
    return checked(name).rows(name, first, count);
  }
  // A total_size that does not fit.
  const std::vector<std::string>& warnings() const override { return warnings_; }

 private:
  void open_shards(const std::string& index_path);
  const SafetensorsFile& checked(const std::string& name) const;

  std::string folder_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, const SafetensorsFile*> tensors_;
  std::vector<std::string> warnings_;
};

}  // namespace drivetrain
