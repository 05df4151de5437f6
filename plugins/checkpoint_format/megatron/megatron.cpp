// Checkpoint folders of Megatron-LM, recognised so that a user gets an answer that fits.
// Source: megatron/training/checkpointing.py, megatron/core/dist_checkpointing/.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include <drivetrain/checkpoint_format.h>
#include <drivetrain/error.h>
#include <drivetrain/services.h>

namespace drivetrain::megatron {
namespace {

namespace fs = std::filesystem;

// What an iteration's folder is: "torch_dist", "torch" (one pickle per rank), "" for neither.
std::string form_of(const fs::path& folder) {
  std::error_code unknown;
  if (fs::exists(folder / "metadata.json", unknown) && fs::exists(folder / ".metadata", unknown)) return "torch_dist";
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, unknown))
    if (entry.path().filename().string().starts_with("mp_rank_") &&
        fs::exists(entry.path() / "model_optim_rng.pt", unknown))
      return "torch";
  return {};
}

// The folder itself, or its last iteration.
std::string form_below(const fs::path& folder) {
  if (const std::string form = form_of(folder); !form.empty()) return form;
  std::vector<fs::path> iterations;
  std::error_code unknown;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, unknown))
    if (const std::string name = entry.path().filename().string(); name.starts_with("iter_") || name == "release")
      iterations.push_back(entry.path());
  std::sort(iterations.begin(), iterations.end());
  return iterations.empty() ? "" : form_of(iterations.back());
}

}  // namespace

class Megatron final : public CheckpointFormat {
 public:
  Megatron(const NoOptions&, const Services&) {}

  std::string recognizes(const std::string& folder) const override {
    const std::string form = form_below(folder);
    return form.empty() ? "" : concat("Megatron-LM, form ", form);
  }
  std::shared_ptr<const Checkpoint> open(const std::string& folder, const std::string&) const override {
    throw fail(ErrorCode::checkpoint, folder, ": is a checkpoint of Megatron-LM (form ", form_below(folder),
               "), which is not read in this version\n   convert it to a Hugging Face folder with Megatron's own ",
               "tools, and use that");
  }
};

}  // namespace drivetrain::megatron

DRIVETRAIN_PLUGIN(drivetrain::CheckpointFormat, "megatron", drivetrain::megatron::Megatron)
