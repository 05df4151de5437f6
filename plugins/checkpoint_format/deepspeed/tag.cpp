#include "tag.h"

#include <set>

#include <drivetrain/toolkit/text.h>

#include "keys.h"
#include "open_tag.h"
#include "plain.h"

namespace drivetrain::deepspeed {
namespace {

class TagReader {
 public:
  TagReader(const TagFiles& files, const std::vector<std::string>& notes) : tag_(files, notes) {}

  std::shared_ptr<const Checkpoint> read() {
    check_names();
    for (const std::string& path : tag_.files.model) tag_.models.push_back(TorchFile::open(path));
    for (const std::string& path : tag_.files.optimizer) tag_.optimizers.push_back(TorchFile::open(path));
    if (tag_.optimizers.empty())
      read_whole();
    else
      add_partitions(tag_);
    read_frozen();
    read_rest_of_module();
    name_unknown(*tag_.models.front(), tag_.model_root(), kModelStates);
    if (!tag_.optimizers.empty()) {
      name_unknown(*tag_.optimizers.front(), tag_.optimizers.front()->root(), kOptimStates);
      name_unknown(*tag_.optimizers.front(), tag_.state_of(0), kOptimizerState);
    }
    add_facts(tag_);
    tag_.made->finish();
    return tag_.made;
  }

 private:
  void check_names() const {
    if (!tag_.files.refused.empty())
      throw tag_.bad("holds ", tag_.files.refused.front(), " (", tag_.files.refused.size(),
                     " such files): folders of DeepSpeed ",
                     "with pipeline stages, experts or tensor parallelism are not supported");
    for (const auto* list : {&tag_.files.model, &tag_.files.optimizer})
      for (size_t rank = 0; rank < list->size(); ++rank)
        if ((*list)[rank].empty())
          throw tag_.bad("the file of data-parallel rank ", rank, " is missing; there are those of ", list->size() - 1,
                         " and others");
    if (tag_.files.model.empty()) throw tag_.bad("has no *_model_states.pt");
    if (tag_.files.stage3 && tag_.files.optimizer.empty())
      throw tag_.bad("has files of ZeRO stage 3 and no *_optim_states.pt, which hold the weights");
  }

  // Of the first file of each kind: what the others hold is the same by name.
  void name_unknown(const TorchFile& file, const PickleNode& node, const char* part) {
    const std::vector<std::string> names = unknown_keys(file.tree(), node, part);
    if (!names.empty())
      tag_.notes.push_back(concat(file.path(), ": not used, for DeepSpeed has no such keys: ", join(names)));
  }

  // Stage 0.
  void read_whole() {
    const PlainFigures figures = read_plain(tag_.models.front(), buffer_names(), *tag_.made);
    tag_.updates = figures.updates;
    tag_.notes.insert(tag_.notes.end(), figures.notes.begin(), figures.notes.end());
  }

  std::set<std::string> buffer_names() const {
    std::set<std::string> names;
    if (const PickleNode* list = member(tag_.model_tree(), tag_.model_root(), "buffer_names"))
      for (const PickleNode* name : tag_.model_tree().list(*list, "buffer_names"))
        names.insert(tag_.model_tree().text(*name, "buffer_names"));
    return names;
  }

  void read_frozen() {
    const PickleNode* frozen = member(tag_.model_tree(), tag_.model_root(), "frozen_param_shapes");
    if (!frozen) return;
    for (const NamedShape& param : tag_.shapes(*frozen)) {
      int64_t at = 0;
      for (const Tag::File& file : tag_.models) {  // one, or the shares of all ranks
        const PickleNode* fragments = member(file->tree(), file->root(), "frozen_param_fragments");
        const PickleNode* fragment = fragments ? file->tree().find(*fragments, param.name) : nullptr;
        if (!fragment) throw tag_.bad(file->path(), " has no values of the frozen parameter ", param.name);
        const TorchTensor tensor = file->tensor(*fragment, param.name);
        if (at == 0) tag_.made->add("model/" + param.name, param.shape, tensor.dtype);
        const int64_t some = std::min(tensor.numel(), param.numel - at);
        tag_.made->add_range("model/" + param.name, at, some, file, tensor);
        at += some;
      }
    }
  }

  // Buffers, frozen parameters, and second names of shared ones.
  void read_rest_of_module() {
    if (const PickleNode* shared = member(tag_.model_tree(), tag_.model_root(), "shared_params"))
      for (const auto& [key, of] : tag_.model_tree().pairs(*shared, "shared_params")) {
        const std::string name = "model/" + tag_.model_tree().text(*key, "shared_params");
        const std::string source = "model/" + tag_.model_tree().text(*of, "shared_params");
        if (!tag_.made->contains(name) && tag_.made->contains(source)) tag_.made->add_alias(name, source);
      }
    const PickleNode* module = member(tag_.model_tree(), tag_.model_root(), "module");
    if (!module) return;
    // Frozen parameters, too: below stage 2 they stand nowhere else. In stage 3 the module holds empty tensors.
    for (const auto& [key, value] : tag_.model_tree().pairs(*module, "module")) {
      const std::string& name = tag_.model_tree().text(*key, "a weight's name");
      if (!TorchFile::is_tensor(*value) || tag_.made->contains("model/" + name)) continue;
      const TorchTensor tensor = tag_.models.front()->tensor(*value, name);
      if (tag_.stage < 3 || buffer_names().count(name))
        tag_.made->add_whole("model/" + name, tag_.models.front(), tensor);
    }
  }

  Tag tag_;
};

}  // namespace

const PickleNode* member(const PickleTree& tree, const PickleNode& node, const char* key) {
  const PickleNode* found = tree.find(node, key);
  return found && found->kind != PickleNode::Kind::none ? found : nullptr;
}

const PickleNode& Tag::state_of(size_t rank) const {
  const TorchFile& file = *optimizers[rank];
  return file.tree().at(file.root(), "optimizer_state_dict");
}

std::vector<NamedShape> Tag::shapes(const PickleNode& node) const {
  std::vector<NamedShape> list;
  for (const auto& [name, shape] : model_tree().pairs(node, "param_shapes")) {
    NamedShape one{model_tree().text(*name, "a parameter's name"), model_tree().integers(*shape, "a shape"), 1};
    for (const int64_t size : one.shape)
      if (size < 0 || __builtin_mul_overflow(one.numel, size, &one.numel))
        throw bad(one.name, " has the shape ", at::IntArrayRef(one.shape), ", which cannot be");
    list.push_back(std::move(one));
  }
  return list;
}

std::shared_ptr<const Checkpoint> open_tag(const TagFiles& files, const std::vector<std::string>& notes) {
  return TagReader(files, notes).read();
}

}  // namespace drivetrain::deepspeed
