#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/files/read_file.h>
#include <drivetrain/toolkit/text.h>
#include <drivetrain/toolkit/torch_files/dcp_folder.h>
#include <drivetrain/toolkit/torch_files/torch_checkpoint.h>
#include <drivetrain/value.h>

#include "dcp.h"
#include "keys.h"

namespace drivetrain::dcp {
namespace {

namespace fs = std::filesystem;

constexpr const char *kWeights = "pytorch_model_fsdp_", *kState = "optimizer_";  // how accelerate's folders begin

class Reader {
 public:
  explicit Reader(const std::string& folder) : folder_(folder), made_(std::make_shared<TorchCheckpoint>(folder)) {}

  void add(const std::string& folder) {
    const DcpFolder& opened = *folders_.emplace_back(std::make_unique<DcpFolder>(folder));
    for (const auto& [name, shape] : opened.shapes())
      if (const std::string ours = our_name(opened, name); !ours.empty()) made_->add(ours, shape, at::kFloat);
    const auto wanted = [&](const std::string& name) {
      const bool is_read = is_ours(opened, name) || is_step(opened.path(name));
      if (!is_read && !has_no_effect(opened.path(name))) unknown_.insert(name.substr(0, 100));
      return is_read;
    };
    opened.each_item(wanted, [&](const DcpFolder::Item& item) { take(opened, item); });
  }
  void note_step(int64_t step) { step_ = std::max(step_, step); }

  std::shared_ptr<const Checkpoint> finish(const std::string& format) {
    Value& facts = made_->set_facts();
    // Meta's names of a Llama, which torchtitan keeps.
    const bool meta = made_->contains("model/tok_embeddings.weight");
    facts.set("format", format), facts.set("naming", meta ? "meta" : "hf");
    facts.set("step", std::max(step_, updates_)), facts.set("updates", updates_ ? updates_ : step_);
    facts.set("notes", notes());
    made_->finish();
    return made_;
  }

 private:
  // What no row of the table has.
  Value notes() const {
    constexpr size_t kMost = 12;
    if (unknown_.empty()) return Value::array();
    const std::vector<std::string> all(unknown_.begin(), unknown_.end());
    const std::vector<std::string> some(all.begin(), all.begin() + static_cast<int64_t>(std::min(kMost, all.size())));
    return Value::Array{concat(folder_, ": not used, for nothing here knows them: ", join(some),
                               all.size() > kMost ? concat(" and ", all.size() - kMost, " more") : "")};
  }
  static std::string our_name(const DcpFolder& folder, const std::string& name) {
    return name_of_path(folder.path(name));
  }
  static bool is_ours(const DcpFolder& folder, const std::string& name) {
    return folder.shapes().count(name) > 0 && !our_name(folder, name).empty();
  }

  void take(const DcpFolder& folder, const DcpFolder::Item& item) {
    if (!is_ours(folder, item.name)) {
      const bool of_optimizer = is_of_optimizer(folder.path(item.name));
      int64_t& count = of_optimizer ? updates_ : step_;
      count = std::max(count, static_cast<int64_t>(item.file->number(item.file->root(), item.name)));
      return;
    }
    for (const ChunkBox& part : boxes_of_chunk(folder.shapes().at(item.name), item.offsets, item.values.shape))
      made_->add_box(our_name(folder, item.name), part.box, item.file, item.values, part.first);
  }

  const std::string folder_;
  std::vector<std::unique_ptr<DcpFolder>> folders_;  // their files stay open
  const std::shared_ptr<TorchCheckpoint> made_;
  std::set<std::string> unknown_;  // names of what is not read
  int64_t step_ = 0, updates_ = 0;
};

// accelerate's FSDP: weights and the optimizer's state in folders of their own, under names that count models,
// "optimizer_0". Sorted.
std::vector<std::string> parts_of_accelerate(const std::string& folder, const std::string& begin) {
  std::vector<std::string> parts;
  std::error_code unknown;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, unknown)) {
    const std::string name = entry.path().filename().string();
    const bool counts =
        name.starts_with(begin) && name.find_first_not_of("0123456789", begin.size()) == std::string::npos;
    if (counts && entry.is_directory(unknown)) parts.push_back(entry.path().string());
  }
  std::sort(parts.begin(), parts.end());
  return parts;
}

// Empty if there is none.
std::string part_of_accelerate(const std::string& folder, const std::string& begin) {
  const std::vector<std::string> parts = parts_of_accelerate(folder, begin);
  if (parts.size() > 1)
    throw fail(ErrorCode::checkpoint, folder, ": holds several models or optimizers: ", join(parts),
               "\n   give a folder that has one of each, or the folder of one model's weights alone: ", parts.front());
  return parts.empty() ? "" : parts.front();
}

bool is_whole(const std::string& part) {
  std::error_code unknown;
  return fs::is_regular_file(fs::path(part) / DcpFolder::kMetadata, unknown);
}

// The step that Hugging Face's Trainer notes beside its files; 0 if it does not.
int64_t step_of_trainer(const std::string& folder) {
  const std::optional<std::string> text = read_file(folder + "/trainer_state.json", size_t{64} << 20);
  if (!text) return 0;
  const Value state = parse_json(*text, folder + "/trainer_state.json");
  const Value* const step = state.find("global_step");
  return step && step->is_int() ? step->as_int() : 0;
}

}  // namespace

bool has_parts_of_accelerate(const std::string& folder) {
  const std::vector<std::string> weights = parts_of_accelerate(folder, kWeights);
  return std::any_of(weights.begin(), weights.end(), is_whole);
}

std::shared_ptr<const Checkpoint> read_folder(const std::string& folder) {
  Reader reader(folder);
  if (!has_parts_of_accelerate(folder)) {
    reader.add(folder);
    return reader.finish("PyTorch distributed checkpoint");
  }
  const std::string weights = part_of_accelerate(folder, kWeights), state = part_of_accelerate(folder, kState);
  if (!state.empty() && !is_whole(state))
    throw fail(ErrorCode::checkpoint, state,
               ": has no file .metadata, without which nothing in it can be read\n   bring it, "
               "or take the weights alone: ",
               weights);
  reader.add(weights);
  if (!state.empty()) reader.add(state);
  reader.note_step(step_of_trainer(folder));
  return reader.finish("PyTorch distributed checkpoint in accelerate's folders");
}

}  // namespace drivetrain::dcp
