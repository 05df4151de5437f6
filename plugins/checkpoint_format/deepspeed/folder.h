// Which files of DeepSpeed are in a folder. Source: deepspeed/runtime/engine.py (_get_ckpt_name, _get_zero_ckpt_name).
#pragma once

#include <string>
#include <vector>

namespace drivetrain::deepspeed {

// The files of one tag, as their names tell.
struct TagFiles {
  std::string folder;
  std::vector<std::string> model;      // by data-parallel rank in stage 3; one otherwise
  std::vector<std::string> optimizer;  // by data-parallel rank; empty in stage 0
  std::vector<std::string> refused;    // of pipeline stages, experts, tensor-parallel ranks: one name each
  bool stage3 = false;

  bool any() const { return !model.empty() || !optimizer.empty() || !refused.empty(); }
};

TagFiles list_files(const std::string& folder);

// The folder of the tag: `folder` itself or one below it. "": there is none.
// Error(config) if it is not clear which tag is meant; `notes` gets what is odd.
std::string find_tag_folder(const std::string& folder, const std::string& tag, std::vector<std::string>& notes);

// Names of the folders in `folder` that hold files of a tag, sorted by step.
std::vector<std::string> tags_in(const std::string& folder);

}  // namespace drivetrain::deepspeed
