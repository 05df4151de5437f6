#include "plain.h"

#include <ATen/ops/equal.h>

#include <algorithm>
#include <map>

#include <drivetrain/error.h>

namespace drivetrain::deepspeed {
namespace {

using Kind = PickleNode::Kind;

// Elements by which float32 values are known as those of a 16-bit weight.
constexpr int64_t kCompared = 4096;

struct Param {
  std::string name;
  TorchTensor tensor;
};

// One of the optimizer's tensors: a parameter's, or all of a group in one.
struct Entry {
  int64_t index = 0;                           // by which the optimizer's state names it
  std::map<std::string, TorchTensor> moments;  // as large as the values
};

class PlainReader {
 public:
  PlainReader(const TorchCheckpoint::File& file, const std::set<std::string>& buffers, TorchCheckpoint& made)
      : file_(file), tree_(file->tree()), buffers_(buffers), made_(made) {}

  PlainFigures read() {
    read_module();
    if (const PickleNode* optimizer = member(file_->root(), "optimizer")) read_optimizer(*optimizer);
    for (const Param& param : params_)
      if (!made_.contains("model/" + param.name)) made_.add_whole("model/" + param.name, file_, param.tensor);
    for (const auto& [name, of] : aliases_) made_.add_alias("model/" + name, "model/" + of);
    return figures_;
  }

 private:
  template <class... Parts>
  Error bad(const Parts&... parts) const {
    return fail(ErrorCode::checkpoint, file_->path(), ": ", parts...);
  }

  const PickleNode* member(const PickleNode& node, const char* key) const {
    const PickleNode* const found = tree_.find(node, key);
    return found && found->kind != Kind::none ? found : nullptr;
  }

  void read_module() {
    std::map<std::pair<std::string, int64_t>, std::string> known;
    for (const auto& [key, value] : tree_.pairs(tree_.at(file_->root(), "module"), "module")) {
      const std::string& name = tree_.text(*key, "a weight's name");
      if (!TorchFile::is_tensor(*value) || buffers_.count(name)) continue;
      const TorchTensor tensor = file_->tensor(*value, name);
      const auto [first, fresh] = known.emplace(std::pair(tensor.data->name, tensor.offset), name);
      if (fresh)
        params_.push_back({name, tensor});
      else
        aliases_.emplace_back(name, first->second);
    }
  }

  void read_optimizer(const PickleNode& optimizer) {
    const PickleNode* const inner = member(optimizer, "optimizer_state_dict");
    const PickleNode *const flat = member(optimizer, "fp32_groups_flat"), *const single =
                                                                              member(optimizer, "fp32_groups");
    std::vector<std::vector<Entry>> groups = entries(inner ? *inner : optimizer);
    if (flat) {
      const auto& values = tree_.list(*flat, "fp32_groups_flat");
      if (values.size() != groups.size()) throw bad(groups.size(), " groups have ", values.size(), " float32 tensors");
      for (size_t g = 0; g < groups.size(); ++g) add_flat(groups[g], *values[g]);
    } else if (single) {
      const auto& values = tree_.list(*single, "fp32_groups");
      if (values.size() != groups.size()) throw bad(groups.size(), " groups have float32 values of ", values.size());
      for (size_t g = 0; g < groups.size(); ++g) add_masters(groups[g], tree_.list(*values[g], "fp32_groups"));
    } else {
      add_by_shapes(groups);
    }
  }

  // By parameter group, in the optimizer's order.
  std::vector<std::vector<Entry>> entries(const PickleNode& optimizer) {
    std::map<int64_t, const PickleNode*> states;
    for (const auto& [key, state] : tree_.pairs(tree_.at(optimizer, "state"), "the optimizer's state"))
      states[tree_.integer(*key, "a parameter's number")] = state;
    std::vector<std::vector<Entry>> groups;
    for (const PickleNode* group : tree_.list(tree_.at(optimizer, "param_groups"), "param_groups")) {
      groups.emplace_back();
      for (const int64_t index : tree_.integers(tree_.at(*group, "params"), "params")) {
        groups.back().push_back({index, {}});
        if (const auto state = states.find(index); state != states.end())
          groups.back().back().moments = moments_of(*state->second);
      }
    }
    return groups;
  }

  std::map<std::string, TorchTensor> moments_of(const PickleNode& state) {
    std::map<std::string, TorchTensor> moments;
    for (const auto& [moment, value] : tree_.pairs(state, "the optimizer's state")) {
      if (moment->kind != Kind::text) continue;
      if (moment->text == "step")
        figures_.updates = std::max(figures_.updates, static_cast<int64_t>(file_->number(*value, "step")));
      else if (TorchFile::is_tensor(*value))
        moments.emplace(moment->text, file_->tensor(*value, moment->text));
    }
    return moments;
  }

  // ---- with float32 values, which say by themselves whose they are

  // The 16-bit weight is these values, rounded.
  bool are_those_of(const TorchTensor& values, int64_t at, const Param& param) const {
    const int64_t count = std::min(kCompared, param.tensor.numel());
    return at + param.tensor.numel() <= values.numel() &&
           at::equal(file_->read(values, at, count).to(param.tensor.dtype), file_->read(param.tensor, 0, count));
  }

  // The next parameter from `first` on that they are those of; others are frozen, or of another group. `alone`: the
  // values are one parameter's, in its shape.
  size_t owner_of(const TorchTensor& values, bool alone, int64_t at, size_t first) const {
    const auto fits = [&](const Param& param) {
      return (!alone || param.tensor.shape == values.shape) && are_those_of(values, at, param);
    };
    while (first < params_.size() && !fits(params_[first])) ++first;
    if (first < params_.size()) return first;
    throw bad("float32 values that the optimizer holds (", values.numel(), " elements, from ", at,
              " on) are those of no weight of the module");
  }

  void add_values(const Param& param, const std::string& name, const TorchTensor& source, int64_t at) {
    made_.add(name, param.tensor.shape, at::kFloat);
    made_.add_range(name, 0, param.tensor.numel(), file_, source, at);
  }

  void add_param(const Param& param, const TorchTensor& master, const Entry& entry, int64_t at) {
    add_values(param, "model/" + param.name, master, at);
    for (const auto& [moment, tensor] : entry.moments)
      if (tensor.numel() == master.numel()) add_values(param, "optimizer/" + param.name + "." + moment, tensor, at);
  }

  void add_masters(const std::vector<Entry>& group, const std::vector<const PickleNode*>& masters) {
    if (group.size() != masters.size())
      throw bad(group.size(), " parameters have ", masters.size(), " float32 tensors");
    size_t next = 0;
    for (size_t i = 0; i < group.size(); ++i) {
      const TorchTensor master = file_->tensor(*masters[i], "fp32_groups");
      next = owner_of(master, true, 0, next);
      add_param(params_[next++], master, group[i], 0);
    }
  }

  void add_flat(const std::vector<Entry>& group, const PickleNode& values) {
    const TorchTensor flat = file_->tensor(values, "fp32_groups_flat");
    if (group.size() != 1) throw bad("a group that is one float32 tensor has ", group.size(), " in the optimizer");
    size_t next = 0;
    for (int64_t at = 0; at < flat.numel(); at += params_[next++].tensor.numel()) {
      next = owner_of(flat, false, at, next);
      add_param(params_[next], flat, group[0], at);
    }
  }

  // ---- without them: which parameter is whose follows from order and shapes, or does not

  void add_by_shapes(const std::vector<std::vector<Entry>>& groups) {
    std::map<std::vector<int64_t>, std::vector<const Param*>> of_shape;
    for (const Param& param : params_) of_shape[param.tensor.shape].push_back(&param);
    std::map<std::vector<int64_t>, std::set<size_t>> groups_of;
    std::map<std::vector<int64_t>, std::vector<const Entry*>> entries_of;
    std::vector<const Entry*> all;
    for (size_t g = 0; g < groups.size(); ++g)
      for (const Entry& entry : groups[g]) {
        all.push_back(&entry);
        if (const TorchTensor* const like = largest(entry))
          groups_of[like->shape].insert(g), entries_of[like->shape].push_back(&entry);
      }
    if (entries_of.empty()) return;                            // an optimizer without moments
    if (groups.size() == 1 && all.size() == params_.size()) {  // all of them, in the module's order
      for (size_t i = 0; i < all.size(); ++i) add_moments(params_[i], *all[i]);
      return;
    }
    for (const auto& [shape, some] : entries_of)
      if (groups_of[shape].size() > 1 || of_shape[shape].size() != some.size())
        return figures_.notes.push_back(concat(
            file_->path(), ": the optimizer's state is left out: ", groups.size() == 1 ? "" : "in several groups ",
            some.size(), " of ", of_shape[shape].size(), " parameters of shape ", at::IntArrayRef(shape),
            " are trained, and the file does not tell which"));
    for (const auto& [shape, some] : entries_of)
      for (size_t i = 0; i < some.size(); ++i) add_moments(*of_shape[shape][i], *some[i]);
  }

  static const TorchTensor* largest(const Entry& entry) {
    const TorchTensor* found = nullptr;
    for (const auto& [moment, tensor] : entry.moments)
      if (!tensor.shape.empty() && (!found || tensor.numel() > found->numel())) found = &tensor;
    return found;
  }

  void add_moments(const Param& param, const Entry& entry) {
    for (const auto& [moment, tensor] : entry.moments) {
      if (tensor.shape.empty()) continue;
      if (tensor.shape != param.tensor.shape)
        throw bad("the optimizer's ", moment, " number ", entry.index, " has shape ", at::IntArrayRef(tensor.shape),
                  ", ", param.name, " has ", at::IntArrayRef(param.tensor.shape));
      made_.add_whole("optimizer/" + param.name + "." + moment, file_, tensor);
    }
  }

  const TorchCheckpoint::File& file_;
  const PickleTree& tree_;
  const std::set<std::string>& buffers_;
  TorchCheckpoint& made_;
  std::vector<Param> params_;                                 // in the module's order, each once
  std::vector<std::pair<std::string, std::string>> aliases_;  // second names, with the first
  PlainFigures figures_;
};

}  // namespace

PlainFigures read_plain(const TorchCheckpoint::File& file, const std::set<std::string>& buffers,
                        TorchCheckpoint& made) {
  return PlainReader(file, buffers, made).read();
}

}  // namespace drivetrain::deepspeed
