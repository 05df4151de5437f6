#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/files/read_file.h>
#include <drivetrain/toolkit/text.h>
#include <drivetrain/toolkit/torch_files/torch_checkpoint.h>

#include "universal.h"

namespace drivetrain::universal {
namespace {

namespace fs = std::filesystem;
using File = TorchCheckpoint::File;
using Kind = PickleNode::Kind;

constexpr const char* kValues = "fp32.pt";

// Whether `zero/` holds a parameter. The first folders tell.
bool holds_parameters(const fs::path& folder) {
  std::error_code unknown;
  int tried = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder / "zero", unknown)) {
    if (fs::exists(entry.path() / kValues, unknown)) return true;
    if (++tried == 16) break;
  }
  return false;
}

class Reader {
 public:
  explicit Reader(const std::string& folder) : folder_(folder), made_(std::make_shared<TorchCheckpoint>(folder)) {}

  std::shared_ptr<const Checkpoint> read() {
    read_model_states();
    for (const std::string& name : names_in(fs::path(folder_) / "zero", InFolder::folders)) read_parameter(name);
    check_moments();
    read_step_of_all();
    Value& facts = made_->set_facts();
    facts.set("format", "DeepSpeed, universal checkpoint"), facts.set("naming", "hf");
    facts.set("step", step_ >= 0 ? step_ : updates_), facts.set("updates", updates_);
    facts.set("notes", Value::array());
    made_->finish();
    return made_;
  }

 private:
  template <class... Parts>
  Error bad(const Parts&... parts) const {
    return fail(ErrorCode::checkpoint, folder_, ": ", parts...);
  }
  std::string in(const std::string& name) const { return (fs::path(folder_) / name).string(); }

  // Shapes for stage 3, whose values are flat, and the step. Files of tensor-parallel ranks beside it say the same.
  void read_model_states() {
    for (const char* name : {"mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_model_states.pt"}) {
      std::error_code unknown;
      if (!fs::exists(in(name), unknown)) continue;
      const File file = TorchFile::open(in(name));
      const PickleTree& tree = file->tree();
      if (const PickleNode* step = tree.find(file->root(), "global_steps"); step && step->kind == Kind::integer)
        step_ = step->integer;
      const PickleNode* groups = tree.find(file->root(), "param_shapes");
      if (!groups || groups->kind == Kind::none) return;
      const auto add = [&](const PickleNode& group) {
        for (const auto& [key, shape] : tree.pairs(group, "param_shapes"))
          shapes_[tree.text(*key, "a parameter's name")] = tree.integers(*shape, "a shape");
      };
      if (groups->kind == Kind::dict) return add(*groups);
      for (const PickleNode* group : tree.list(*groups, "param_shapes")) add(*group);
      return;
    }
  }

  void read_parameter(const std::string& name) {
    for (const std::string& file_name : names_in(fs::path(folder_) / "zero" / name, InFolder::files)) {
      if (!file_name.ends_with(".pt")) continue;
      const std::string state = file_name.substr(0, file_name.size() - 3);
      const File file = TorchFile::open(in(concat("zero/", name, "/", file_name)));
      if (state == "step") {
        updates_ = std::max(updates_, static_cast<int64_t>(file->number(file->root(), "step")));
        continue;
      }
      add(state == "fp32" ? "model/" + name : concat("optimizer/", name, ".", state), name, file);
      if (state != "fp32") moments_[name].insert(state);
    }
    if (!made_->contains("model/" + name)) throw bad("zero/", name, " has no ", kValues);
  }

  // A parameter has all moments that others have, or none.
  void check_moments() const {
    std::set<std::string> all;
    for (const auto& [name, moments] : moments_) all.insert(moments.begin(), moments.end());
    for (const auto& [name, moments] : moments_)
      for (const std::string& moment : all)
        if (!moments.count(moment)) throw bad("zero/", name, " has no ", moment, ".pt, which other parameters have");
  }

  void add(const std::string& to, const std::string& name, const File& file) {
    const PickleTree& tree = file->tree();
    const bool bare = TorchFile::is_tensor(file->root());
    const PickleNode& node = bare ? file->root() : tree.at(file->root(), "param");
    const TorchTensor tensor = file->tensor(node, name);
    if (!bare) return made_->add_whole(to, file, tensor);
    const auto shape = shapes_.find(name);
    if (shape == shapes_.end())
      throw bad("zero/", name, " is flat, and no *_model_states.pt beside it tells its shape");
    made_->add(to, shape->second, tensor.dtype);
    const StateBox box = whole_of(shape->second);
    if (box.rows * box.columns != tensor.numel())
      throw fail(ErrorCode::checkpoint, file->path(), ": has ", tensor.numel(), " elements; the shape of ", name,
                 " is ", at::IntArrayRef(shape->second));
    made_->add_box(to, box, file, tensor);
  }

  // Stage 3 has the number of updates once.
  void read_step_of_all() {
    std::error_code unknown;
    if (updates_ > 0 || !fs::exists(in("zero/optimizer_state.pt"), unknown)) return;
    const File file = TorchFile::open(in("zero/optimizer_state.pt"));
    const PickleTree& tree = file->tree();
    const PickleNode* optimizer = tree.find(file->root(), "optimizer_state_dict");
    const PickleNode* states = optimizer ? tree.find(*optimizer, "state") : nullptr;
    if (!states) return;
    for (const auto& [key, state] : tree.pairs(*states, "the optimizer's state"))
      if (const PickleNode* step = tree.find(*state, "step"))
        updates_ = std::max(updates_, static_cast<int64_t>(file->number(*step, "step")));
  }

  const std::string folder_;
  const std::shared_ptr<TorchCheckpoint> made_;
  std::map<std::string, std::vector<int64_t>> shapes_;
  std::map<std::string, std::set<std::string>> moments_;  // by parameter
  int64_t step_ = -1, updates_ = 0;
};

}  // namespace

std::string find_folder(const std::string& folder, const std::string& tag) {
  if (tag.empty() && holds_parameters(folder)) return folder;
  std::vector<std::string> tags;
  for (const std::string& name : names_in(folder, InFolder::folders))
    if (holds_parameters(fs::path(folder) / name)) tags.push_back(name);
  if (tags.empty()) return {};
  std::string wanted = tag;
  if (wanted.empty()) {
    std::istringstream text(read_file(fs::path(folder) / "latest_universal", 4096).value_or(""));
    text >> wanted;
  }
  if (wanted.empty() && tags.size() == 1) wanted = tags.front();
  if (std::find(tags.begin(), tags.end(), wanted) == tags.end())
    throw fail(ErrorCode::config, folder, ": ",
               wanted.empty() ? std::string("holds several universal checkpoints and no file `latest_universal`")
                              : concat("has no universal checkpoint ", wanted.substr(0, 100)),
               "; there are ", join(tags));
  return (fs::path(folder) / wanted).string();
}

std::shared_ptr<const Checkpoint> read_folder(const std::string& folder) { return Reader(folder).read(); }

}  // namespace drivetrain::universal
