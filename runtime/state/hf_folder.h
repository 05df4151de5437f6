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

namespace drivetrain {

class DRIVETRAIN_INTERNAL HfFolder {
 public:
  explicit HfFolder(const std::string& folder);

  const std::string& path() const { return folder_; }
  Value config() const;                    // config.json
  std::vector<std::string> names() const;  // of all tensors, sorted
  // The file that holds a tensor, nullptr if none does.
  const SafetensorsFile* file_of(const std::string& name) const;
  // Odd, but no reason to stop: a total_size that does not fit. For the log.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  void open_shards(const std::string& index_path);

  std::string folder_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, const SafetensorsFile*> tensors_;
  std::vector<std::string> warnings_;
};

}  // namespace drivetrain
