// Source: deepspeed/utils/zero_to_fp32.py, deepspeed/runtime/zero/{stage_1_and_2,stage3}.py.
#include <algorithm>
#include <map>

#include "tag.h"

namespace drivetrain::deepspeed {
namespace {

using File = Tag::File;
using Kind = PickleNode::Kind;

constexpr const char* kPartition = "single_partition_of_fp32_groups";

// A flat tensor of one rank: float32 values or one moment of a group of parameters.
struct Flat {
  File file;
  TorchTensor tensor;
};

class Partitions {
 public:
  explicit Partitions(Tag& tag) : tag_(tag) {}

  void read() {
    const PickleTree& tree = tag_.optimizers.front()->tree();
    const PickleNode* const named = tree.find(tag_.state_of(0), "zero_stage");
    // BF16_Optimizer, which sums gradients in float32, names none: it holds what stage 1 does.
    tag_.stage = named ? stage_number(tree, *named) : member(tree, tag_.state_of(0), kPartition) ? 1 : 0;
    if (tag_.stage < 1 || tag_.stage > 3) throw tag_.bad("names ZeRO stage ", tag_.stage, "; 0 to 3 are known");
    check_partition_count();
    std::vector<std::vector<NamedShape>> groups;
    const PickleNode& param_shapes = tag_.model_tree().at(tag_.model_root(), "param_shapes");
    if (param_shapes.kind == Kind::dict)
      groups.push_back(tag_.shapes(param_shapes));
    else
      for (const PickleNode* group : tag_.model_tree().list(param_shapes, "param_shapes"))
        groups.push_back(tag_.shapes(*group));
    if (tag_.stage == 3)
      add_stage3(groups);
    else
      for (size_t group = 0; group < groups.size(); ++group) add_group(group, groups[group]);
  }

 private:
  // An enumeration's member is a call with its value.
  static int64_t stage_number(const PickleTree& tree, const PickleNode& node) {
    if (node.kind == Kind::call && node.items.size() == 1) return tree.integer(*node.items[0], "zero_stage");
    return tree.integer(node, "zero_stage");
  }

  void check_partition_count() const {
    for (size_t rank = 0; rank < tag_.optimizers.size(); ++rank) {
      const PickleTree& tree = tag_.optimizers[rank]->tree();
      const PickleNode& count = tree.at(tag_.state_of(rank), "partition_count");
      std::vector<int64_t> counts;
      if (count.kind == Kind::integer)
        counts.push_back(count.integer);
      else
        counts = tree.integers(count, "partition_count");
      for (const int64_t one : counts)
        if (one != static_cast<int64_t>(tag_.optimizers.size()))
          throw tag_.bad("was saved by ", one, " data-parallel ranks, and files of ", tag_.optimizers.size(),
                         " are there");
    }
  }

  // By name of the moment: the flat tensors of a rank, one per group. Moments that are no tensors as long as the values
  // (the number of steps) are left out.
  std::map<std::string, Flat> moments(size_t rank, const char* owner, int64_t group, int64_t values) {
    const File& file = tag_.optimizers[rank];
    const PickleTree& tree = file->tree();
    std::map<std::string, Flat> list;
    const PickleNode* optimizer = member(tree, tag_.state_of(rank), owner);
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

  void note_step(double step) { tag_.updates = std::max(tag_.updates, static_cast<int64_t>(step)); }

  // "" for the values, a dot and the moment otherwise.
  static std::string full_name(const std::string& param, const std::string& moment) {
    return moment.empty() ? "model/" + param : concat("optimizer/", param, ".", moment);
  }

  void add_tensor(const NamedShape& param, const std::string& moment) {
    const std::string name = full_name(param.name, moment);
    if (!tag_.made->contains(name)) tag_.made->add(name, param.shape, at::kFloat);
  }

  // Stages 1 and 2: the parameters of a group lie one after another in the partitions of all ranks one after another.
  void add_group(size_t group, const std::vector<NamedShape>& params) {
    int64_t begin = 0, total = 0;  // of the rank's values, among those of the group
    for (const NamedShape& param : params) total += param.numel, add_tensor(param, "");
    for (size_t rank = 0; rank < tag_.optimizers.size(); ++rank) {
      const File& file = tag_.optimizers[rank];
      const PickleTree& tree = file->tree();
      const auto& flats = tree.list(tree.at(tag_.state_of(rank), kPartition), "fp32 partitions");
      if (group >= flats.size()) throw tag_.bad(file->path(), " has partitions of ", flats.size(), " groups only");
      check_alignment(tree, tag_.state_of(rank), group);
      const TorchTensor values = file->tensor(*flats[group], "a fp32 partition");
      const int64_t held = std::min(values.numel(), total - begin);
      check_padding(values.numel() - held);
      add_flat(params, "", {file, values}, begin, held);
      for (const auto& [moment, flat] : moments(rank, "base_optimizer_state", static_cast<int64_t>(group), held))
        add_flat(params, moment, flat, begin, held);
      begin += held;
    }
    if (begin != total) throw tag_.bad("group ", group, " has ", total, " elements, the ranks hold ", begin);
  }

  void check_padding(int64_t extra) const {
    if (extra >= 2 * static_cast<int64_t>(tag_.optimizers.size()) * 64)
      throw tag_.bad("the partitions have ", extra, " elements more than the parameters");
  }

  // Padding between parameters (for some optimizers) would shift what follows.
  void check_alignment(const PickleTree& tree, const PickleNode& state, size_t group) const {
    const PickleNode* paddings = member(tree, state, "param_alignment_paddings");
    if (!paddings) return;
    const auto& groups = tree.list(*paddings, "param_alignment_paddings");
    if (group >= groups.size()) return;
    for (const int64_t padding : tree.integers(*groups[group], "param_alignment_paddings"))
      if (padding != 0)
        throw tag_.bad("parameters are padded one by one (param_alignment_paddings), which is not supported");
  }

  // `flat` has elements [begin, begin + held) of the parameters together.
  void add_flat(const std::vector<NamedShape>& params, const std::string& moment, const Flat& flat, int64_t begin,
                int64_t held) {
    int64_t at = 0;
    for (const NamedShape& param : params) {
      const int64_t from = std::max(at, begin), until = std::min(at + param.numel, begin + held);
      if (!moment.empty()) add_tensor(param, moment);
      if (from < until)
        tag_.made->add_range(full_name(param.name, moment), from - at, until - from, flat.file, flat.tensor,
                             from - begin);
      at += param.numel;
    }
  }

  // Stage 3: every rank holds as many elements of each parameter, the last one with padding. A rank's pieces lie one
  // after another, in one flat tensor or in several.
  void add_stage3(const std::vector<std::vector<NamedShape>>& groups) {
    std::vector<NamedShape> params;
    for (const auto& group : groups) params.insert(params.end(), group.begin(), group.end());
    for (const NamedShape& param : params) add_tensor(param, "");
    for (size_t rank = 0; rank < tag_.optimizers.size(); ++rank) {
      const File& file = tag_.optimizers[rank];
      const PickleTree& tree = file->tree();
      std::map<std::string, std::vector<Flat>> flats;
      const auto& values = tree.list(tree.at(tag_.state_of(rank), "fp32_flat_groups"), "fp32 partitions");
      for (size_t group = 0; group < values.size(); ++group) {
        const TorchTensor flat = file->tensor(*values[group], "a fp32 partition");
        flats[""].push_back({file, flat});
        const auto of_group = moments(rank, "optimizer_state_dict", static_cast<int64_t>(group), flat.numel());
        for (const auto& [moment, other] : of_group) flats[moment].push_back(other);
      }
      for (const auto& [moment, list] : flats) {
        if (list.size() != values.size()) throw tag_.bad(file->path(), " has ", moment, " of some groups only");
        add_pieces(params, moment, list, static_cast<int64_t>(rank));
      }
    }
  }

  void add_pieces(const std::vector<NamedShape>& params, const std::string& moment, const std::vector<Flat>& flats,
                  int64_t rank) {
    const auto world = static_cast<int64_t>(tag_.optimizers.size());
    size_t flat = 0;
    int64_t at = 0;  // in that one
    for (const NamedShape& param : params) {
      if (!moment.empty()) add_tensor(param, moment);
      const int64_t share = param.numel / world + (param.numel % world != 0);
      int64_t begin = std::min(rank * share, param.numel);
      int64_t mine = std::min(share, param.numel - begin), left = share;
      while (left > 0) {  // a piece may go on in the next flat tensor
        if (flat == flats.size()) throw tag_.bad("rank ", rank, " holds fewer values than its share of ", param.name);
        const int64_t some = std::min(left, flats[flat].tensor.numel() - at);
        if (const int64_t used = std::min(some, mine); used > 0) {
          tag_.made->add_range(full_name(param.name, moment), begin, used, flats[flat].file, flats[flat].tensor, at);
          begin += used, mine -= used;
        }
        at += some, left -= some;
        if (at == flats[flat].tensor.numel()) ++flat, at = 0;
      }
    }
  }

  Tag& tag_;
};

}  // namespace

void add_partitions(Tag& tag) { Partitions(tag).read(); }

}  // namespace drivetrain::deepspeed
