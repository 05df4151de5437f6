#include "partitions.h"

#include <filesystem>
#include <set>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "keys.h"
#include "plain.h"

namespace drivetrain::deepspeed {
namespace {

using File = TorchCheckpoint::File;
using Kind = PickleNode::Kind;

constexpr const char* kPartition = "single_partition_of_fp32_groups";

struct NamedShape {
  std::string name;
  std::vector<int64_t> shape;
  int64_t numel = 1;
};

// A flat tensor of one rank: float32 values or one moment of a group of parameters.
struct Flat {
  File file;
  TorchTensor tensor;
};

class TagReader {
 public:
  TagReader(const TagFiles& files, const std::vector<std::string>& notes)
      : files_(files), notes_(notes), made_(std::make_shared<TorchCheckpoint>(files.folder)) {}

  std::shared_ptr<const Checkpoint> read() {
    check_names();
    for (const std::string& path : files_.model) models_.push_back(TorchFile::open(path));
    for (const std::string& path : files_.optimizer) optimizers_.push_back(TorchFile::open(path));
    if (optimizers_.empty())
      read_whole();
    else
      read_partitions();
    read_frozen();
    read_rest_of_module();
    name_unknown(*models_.front(), model_root(), keys_of_model_states());
    if (!optimizers_.empty()) {
      name_unknown(*optimizers_.front(), optimizers_.front()->root(), keys_of_optim_states());
      name_unknown(*optimizers_.front(), state_of(0), keys_of_optimizer_state());
    }
    read_facts();
    made_->finish();
    return made_;
  }

 private:
  template <class... Parts>
  Error bad(const Parts&... parts) const {
    return fail(ErrorCode::checkpoint, files_.folder, ": ", parts...);
  }

  void check_names() const {
    if (!files_.refused.empty())
      throw bad("holds ", files_.refused.front(), " (", files_.refused.size(), " such files): folders of DeepSpeed ",
                "with pipeline stages, experts or tensor parallelism are not supported");
    for (const auto* list : {&files_.model, &files_.optimizer})
      for (size_t rank = 0; rank < list->size(); ++rank)
        if ((*list)[rank].empty())
          throw bad("the file of data-parallel rank ", rank, " is missing; there are those of ", list->size() - 1,
                    " and others");
    if (files_.model.empty()) throw bad("has no *_model_states.pt");
    if (files_.stage3 && files_.optimizer.empty())
      throw bad("has files of ZeRO stage 3 and no *_optim_states.pt, which hold the weights");
  }

  const PickleTree& model_tree() const { return models_.front()->tree(); }
  const PickleNode& model_root() const { return models_.front()->root(); }

  // A member that may be missing or None.
  const PickleNode* member(const PickleTree& tree, const PickleNode& node, const char* key) const {
    const PickleNode* found = tree.find(node, key);
    return found && found->kind != Kind::none ? found : nullptr;
  }

  std::vector<NamedShape> shapes(const PickleNode& node) const {
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

  // Of the first file of each kind: what the others hold is the same by name.
  void name_unknown(const TorchFile& file, const PickleNode& node, const std::vector<KeyRow>& table) {
    const std::vector<std::string> names = unknown_keys(file.tree(), node, table);
    if (!names.empty())
      notes_.push_back(concat(file.path(), ": not used, for DeepSpeed has no such keys: ", join(names)));
  }

  // ---- ZeRO: flat partitions

  void read_partitions() {
    const PickleTree& tree = optimizers_.front()->tree();
    const PickleNode* const named = tree.find(state_of(0), "zero_stage");
    // BF16_Optimizer, which sums gradients in float32, names none: it holds what stage 1 does.
    stage_ = named ? stage_number(tree, *named) : member(tree, state_of(0), kPartition) ? 1 : 0;
    if (stage_ < 1 || stage_ > 3) throw bad("names ZeRO stage ", stage_, "; 0 to 3 are known");
    check_partition_count();
    std::vector<std::vector<NamedShape>> groups;
    const PickleNode& param_shapes = model_tree().at(model_root(), "param_shapes");
    if (param_shapes.kind == Kind::dict)
      groups.push_back(shapes(param_shapes));
    else
      for (const PickleNode* group : model_tree().list(param_shapes, "param_shapes")) groups.push_back(shapes(*group));
    if (stage_ == 3)
      add_stage3(groups);
    else
      for (size_t group = 0; group < groups.size(); ++group) add_group(group, groups[group]);
  }

  const PickleNode& state_of(size_t rank) const {
    const TorchFile& file = *optimizers_[rank];
    return file.tree().at(file.root(), "optimizer_state_dict");
  }

  // An enumeration's member is a call with its value.
  static int64_t stage_number(const PickleTree& tree, const PickleNode& node) {
    if (node.kind == Kind::call && node.items.size() == 1) return tree.integer(*node.items[0], "zero_stage");
    return tree.integer(node, "zero_stage");
  }

  void check_partition_count() const {
    for (size_t rank = 0; rank < optimizers_.size(); ++rank) {
      const PickleTree& tree = optimizers_[rank]->tree();
      const PickleNode& count = tree.at(state_of(rank), "partition_count");
      std::vector<int64_t> counts;
      if (count.kind == Kind::integer)
        counts.push_back(count.integer);
      else
        counts = tree.integers(count, "partition_count");
      for (const int64_t one : counts)
        if (one != static_cast<int64_t>(optimizers_.size()))
          throw bad("was saved by ", one, " data-parallel ranks, and files of ", optimizers_.size(), " are there");
    }
  }

  // By name of the moment: the flat tensors of a rank, one per group. Moments that are no tensors as long as the values
  // (the number of steps) are left out.
  std::map<std::string, Flat> moments(size_t rank, const char* owner, int64_t group, int64_t values) {
    const File& file = optimizers_[rank];
    const PickleTree& tree = file->tree();
    std::map<std::string, Flat> list;
    const PickleNode* optimizer = member(tree, state_of(rank), owner);
    if (!optimizer) return list;
    const PickleNode* of_group = nullptr;
    if (optimizer->kind == Kind::list) {  // an older form: a list of the groups' states
      const auto& groups = tree.list(*optimizer, owner);
      if (static_cast<size_t>(group) < groups.size()) of_group = groups[static_cast<size_t>(group)];
    } else {
      for (const auto& [key, state] : tree.pairs(tree.at(*optimizer, "state"), "the optimizer's state"))
        if (key->kind == Kind::integer && key->integer == group) of_group = state;
    }
    if (!of_group) return list;
    for (const auto& [key, value] : tree.pairs(*of_group, "the optimizer's state")) {
      if (key->kind != Kind::text) continue;
      if (key->text == "step") note_step(file->number(*value, "step"));
      if (!TorchFile::is_tensor(*value)) continue;
      const TorchTensor tensor = file->tensor(*value, key->text);
      if (tensor.numel() >= values && values > 0 && !tensor.shape.empty()) list[key->text] = {file, tensor};
    }
    return list;
  }

  void note_step(double step) { updates_ = std::max(updates_, static_cast<int64_t>(step)); }

  // "" for the values, a dot and the moment otherwise.
  static std::string full_name(const std::string& param, const std::string& moment) {
    return moment.empty() ? "model/" + param : concat("optimizer/", param, ".", moment);
  }

  void add_tensor(const NamedShape& param, const std::string& moment) {
    const std::string name = full_name(param.name, moment);
    if (!made_->contains(name)) made_->add(name, param.shape, at::kFloat);
  }

  // Stages 1 and 2: the parameters of a group lie one after another in the partitions of all ranks one after another.
  void add_group(size_t group, const std::vector<NamedShape>& params) {
    int64_t begin = 0, total = 0;  // of the rank's values, among those of the group
    for (const NamedShape& param : params) total += param.numel, add_tensor(param, "");
    for (size_t rank = 0; rank < optimizers_.size(); ++rank) {
      const File& file = optimizers_[rank];
      const PickleTree& tree = file->tree();
      const auto& flats = tree.list(tree.at(state_of(rank), kPartition), "fp32 partitions");
      if (group >= flats.size()) throw bad(file->path(), " has partitions of ", flats.size(), " groups only");
      check_alignment(tree, state_of(rank), group);
      const TorchTensor values = file->tensor(*flats[group], "a fp32 partition");
      const int64_t held = std::min(values.numel(), total - begin);
      check_padding(values.numel() - held);
      add_flat(params, "", {file, values}, begin, held);
      for (const auto& [moment, flat] : moments(rank, "base_optimizer_state", static_cast<int64_t>(group), held))
        add_flat(params, moment, flat, begin, held);
      begin += held;
    }
    if (begin != total) throw bad("group ", group, " has ", total, " elements, the ranks hold ", begin);
  }

  void check_padding(int64_t extra) const {
    if (extra >= 2 * static_cast<int64_t>(optimizers_.size()) * 64)
      throw bad("the partitions have ", extra, " elements more than the parameters");
  }

  // Padding between parameters (for some optimizers) would shift what follows.
  void check_alignment(const PickleTree& tree, const PickleNode& state, size_t group) const {
    const PickleNode* paddings = member(tree, state, "param_alignment_paddings");
    if (!paddings) return;
    const auto& groups = tree.list(*paddings, "param_alignment_paddings");
    if (group >= groups.size()) return;
    for (const int64_t padding : tree.integers(*groups[group], "param_alignment_paddings"))
      if (padding != 0)
        throw bad("parameters are padded one by one (param_alignment_paddings), which is not supported");
  }

  // `flat` has elements [begin, begin + held) of the parameters together.
  void add_flat(const std::vector<NamedShape>& params, const std::string& moment, const Flat& flat, int64_t begin,
                int64_t held) {
    int64_t at = 0;
    for (const NamedShape& param : params) {
      const int64_t from = std::max(at, begin), until = std::min(at + param.numel, begin + held);
      if (!moment.empty()) add_tensor(param, moment);
      if (from < until)
        made_->add_range(full_name(param.name, moment), from - at, until - from, flat.file, flat.tensor, from - begin);
      at += param.numel;
    }
  }

  // Stage 3: every rank holds as many elements of each parameter, the last one with padding. A rank's pieces lie one
  // after another, in one flat tensor or in several.
  void add_stage3(const std::vector<std::vector<NamedShape>>& groups) {
    std::vector<NamedShape> params;
    for (const auto& group : groups) params.insert(params.end(), group.begin(), group.end());
    for (const NamedShape& param : params) add_tensor(param, "");
    for (size_t rank = 0; rank < optimizers_.size(); ++rank) {
      const File& file = optimizers_[rank];
      const PickleTree& tree = file->tree();
      std::map<std::string, std::vector<Flat>> flats;
      const auto& values = tree.list(tree.at(state_of(rank), "fp32_flat_groups"), "fp32 partitions");
      for (size_t group = 0; group < values.size(); ++group) {
        const TorchTensor flat = file->tensor(*values[group], "a fp32 partition");
        flats[""].push_back({file, flat});
        const auto of_group = moments(rank, "optimizer_state_dict", static_cast<int64_t>(group), flat.numel());
        for (const auto& [moment, other] : of_group) flats[moment].push_back(other);
      }
      for (const auto& [moment, list] : flats) {
        if (list.size() != values.size()) throw bad(file->path(), " has ", moment, " of some groups only");
        add_pieces(params, moment, list, static_cast<int64_t>(rank));
      }
    }
  }

  void add_pieces(const std::vector<NamedShape>& params, const std::string& moment, const std::vector<Flat>& flats,
                  int64_t rank) {
    const auto world = static_cast<int64_t>(optimizers_.size());
    size_t flat = 0;
    int64_t at = 0;  // in that one
    for (const NamedShape& param : params) {
      if (!moment.empty()) add_tensor(param, moment);
      const int64_t share = param.numel / world + (param.numel % world != 0);
      int64_t begin = std::min(rank * share, param.numel);
      int64_t mine = std::min(share, param.numel - begin), left = share;
      while (left > 0) {  // a piece may go on in the next flat tensor
        if (flat == flats.size()) throw bad("rank ", rank, " holds fewer values than its share of ", param.name);
        const int64_t some = std::min(left, flats[flat].tensor.numel() - at);
        if (const int64_t used = std::min(some, mine); used > 0) {
          made_->add_range(full_name(param.name, moment), begin, used, flats[flat].file, flats[flat].tensor, at);
          begin += used, mine -= used;
        }
        at += some, left -= some;
        if (at == flats[flat].tensor.numel()) ++flat, at = 0;
      }
    }
  }

  // ---- stage 0: whole tensors

  void read_whole() {
    const PlainFigures figures = read_plain(models_.front(), buffer_names(), *made_);
    updates_ = figures.updates;
    notes_.insert(notes_.end(), figures.notes.begin(), figures.notes.end());
  }

  // ---- what is beside the trained parameters

  std::set<std::string> buffer_names() const {
    std::set<std::string> names;
    if (const PickleNode* list = member(model_tree(), model_root(), "buffer_names"))
      for (const PickleNode* name : model_tree().list(*list, "buffer_names"))
        names.insert(model_tree().text(*name, "buffer_names"));
    return names;
  }

  void read_frozen() {
    const PickleNode* frozen = member(model_tree(), model_root(), "frozen_param_shapes");
    if (!frozen) return;
    for (const NamedShape& param : shapes(*frozen)) {
      int64_t at = 0;
      for (const File& file : models_) {  // one, or the shares of all ranks
        const PickleNode* fragments = member(file->tree(), file->root(), "frozen_param_fragments");
        const PickleNode* fragment = fragments ? file->tree().find(*fragments, param.name) : nullptr;
        if (!fragment) throw bad(file->path(), " has no values of the frozen parameter ", param.name);
        const TorchTensor tensor = file->tensor(*fragment, param.name);
        if (at == 0) made_->add("model/" + param.name, param.shape, tensor.dtype);
        const int64_t some = std::min(tensor.numel(), param.numel - at);
        made_->add_range("model/" + param.name, at, some, file, tensor);
        at += some;
      }
    }
  }

  // Buffers, frozen parameters, and second names of shared ones.
  void read_rest_of_module() {
    if (const PickleNode* shared = member(model_tree(), model_root(), "shared_params"))
      for (const auto& [key, of] : model_tree().pairs(*shared, "shared_params")) {
        const std::string name = "model/" + model_tree().text(*key, "shared_params");
        const std::string source = "model/" + model_tree().text(*of, "shared_params");
        if (!made_->contains(name) && made_->contains(source)) made_->add_alias(name, source);
      }
    const PickleNode* module = member(model_tree(), model_root(), "module");
    if (!module) return;
    // Frozen parameters, too: below stage 2 they stand nowhere else. In stage 3 the module holds empty tensors.
    for (const auto& [key, value] : model_tree().pairs(*module, "module")) {
      const std::string& name = model_tree().text(*key, "a weight's name");
      if (!TorchFile::is_tensor(*value) || made_->contains("model/" + name)) continue;
      const TorchTensor tensor = models_.front()->tensor(*value, name);
      if (stage_ < 3 || buffer_names().count(name)) made_->add_whole("model/" + name, models_.front(), tensor);
    }
  }

  void read_facts() {
    Value& facts = made_->set_facts();
    const auto count = [&](const char* key) -> int64_t {
      const PickleNode* node = member(model_tree(), model_root(), key);
      return node ? model_tree().integer(*node, key) : 0;
    };
    if (const int64_t tensor_parallel = count("mp_world_size"); tensor_parallel > 1)
      throw bad("was saved with tensor parallelism over ", tensor_parallel, " ranks, which is not supported");
    facts.set("format",
              concat("DeepSpeed, ZeRO stage ", stage_, ", ", std::max<size_t>(optimizers_.size(), 1), " ranks"));
    facts.set("naming", "hf");
    const int64_t steps = count("global_steps");
    if (updates_ > steps)
      notes_.push_back(
          concat(files_.folder, ": the optimizer has counted ", updates_, " updates in ", steps,
                 " steps (DeepSpeed's wrapper for 16 bits makes one of zeros at its start): bias correction ",
                 "and the schedule of CONFIG go on from ", updates_));
    facts.set("step", steps);
    facts.set("updates", updates_);
    facts.set("skipped", count("skipped_steps"));
    if (!optimizers_.empty()) read_scaler(facts);
    Value::Array notes;
    for (const std::string& note : notes_) notes.emplace_back(note);
    facts.set("notes", std::move(notes));
  }

  void read_scaler(Value& facts) const {
    const PickleTree& tree = optimizers_.front()->tree();
    const PickleNode* scaler = member(tree, state_of(0), "loss_scaler");
    const PickleNode* scale = scaler ? tree.find(*scaler, "cur_scale") : nullptr;
    const PickleNode* dynamic = scaler ? tree.find(*scaler, "dynamic") : nullptr;
    if (!scale || !dynamic || tree.integer(*dynamic, "dynamic") == 0) return;
    Value values = Value::object();
    values.set("scale", tree.real(*scale, "cur_scale"));
    const auto number = [&](const char* ours, const char* theirs) {
      if (const PickleNode* node = member(tree, *scaler, theirs)) values.set(ours, tree.integer(*node, theirs));
    };
    number("tolerance", "cur_hysteresis"), number("steps", "cur_iter"), number("last_overflow", "last_overflow_iter");
    facts.set("loss_scaler", std::move(values));
  }

  const TagFiles& files_;
  std::vector<std::string> notes_;
  std::shared_ptr<TorchCheckpoint> made_;
  std::vector<File> models_, optimizers_;
  int64_t stage_ = 0, updates_ = 0;
};

}  // namespace

std::shared_ptr<const Checkpoint> open_tag(const TagFiles& files, const std::vector<std::string>& notes) {
  return TagReader(files, notes).read();
}

}  // namespace drivetrain::deepspeed
