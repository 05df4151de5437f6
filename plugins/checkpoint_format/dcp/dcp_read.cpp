#include <algorithm>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/torch_files/dcp_folder.h>
#include <drivetrain/toolkit/torch_files/torch_checkpoint.h>

#include "dcp.h"

namespace drivetrain::dcp {
namespace {

class Reader {
 public:
  explicit Reader(const std::string& folder) : folder_(folder), made_(std::make_shared<TorchCheckpoint>(folder)) {}

  std::shared_ptr<const Checkpoint> read() {
    for (const auto& [name, shape] : folder_.shapes())
      if (const std::string ours = our_name(name); !ours.empty()) made_->add(ours, shape, at::kFloat);
    folder_.each_item([&](const std::string& name) { return is_ours(name) || is_step(name); },
                      [&](const DcpFolder::Item& item) { take(item); });
    Value& facts = made_->set_facts();
    facts.set("format", "PyTorch distributed checkpoint"), facts.set("naming", "hf");
    facts.set("step", std::max(step_, updates_)), facts.set("updates", updates_ ? updates_ : step_);
    facts.set("notes", Value::array());
    made_->finish();
    return made_;
  }

 private:
  std::string our_name(const std::string& name) const { return name_of_path(folder_.path(name)); }
  bool is_ours(const std::string& name) const { return folder_.shapes().count(name) > 0 && !our_name(name).empty(); }

  void take(const DcpFolder::Item& item) {
    if (!is_ours(item.name)) return note_step(item.name, item.file->number(item.file->root(), item.name));
    for (const ChunkBox& part : boxes_of_chunk(folder_.shapes().at(item.name), item.offsets, item.values.shape))
      made_->add_box(our_name(item.name), part.box, item.file, item.values, part.first);
  }

  // Numbers of steps: of the whole, or of the optimizer for one parameter.
  bool is_step(const std::string& name) const {
    const std::vector<std::string> path = folder_.path(name);
    const std::string& last = path.empty() ? name : path.back();
    return last == "step" || last == "iteration";
  }
  void note_step(const std::string& name, double value) {
    int64_t& count = folder_.path(name).size() <= 2 ? step_ : updates_;
    count = std::max(count, static_cast<int64_t>(value));
  }

  const DcpFolder folder_;
  const std::shared_ptr<TorchCheckpoint> made_;
  int64_t step_ = 0, updates_ = 0;
};

}  // namespace

std::string name_of_path(const std::vector<std::string>& path) {
  const auto state = std::find(path.begin(), path.end(), "state");
  const bool optimizer = std::any_of(path.begin(), state, [](const std::string& word) {
    return word == "optimizer" || word == "optim" || word == "optimizers";
  });
  if (optimizer) {
    if (path.end() - state < 3 || path.back() == "step") return {};
    return "optimizer/" + *(state + 1) + "." + path.back();
  }
  size_t first = 0;
  const auto outer = [](const std::string& word) {
    return word == "app" || word == "model" || word == "module" || word == "state_dict";
  };
  while (first + 1 < path.size() && outer(path[first])) ++first;
  if (path.empty() || path[first] == "step" || path[first] == "iteration") return {};
  std::string name = "model/";
  for (size_t i = first; i < path.size(); ++i) name += (i > first ? "." : "") + path[i];
  return name;
}

std::shared_ptr<const Checkpoint> read_folder(const std::string& folder) { return Reader(folder).read(); }

}  // namespace drivetrain::dcp
