// Source: megatron/core/dist_checkpointing/strategies/torch.py; transformer/transformer_block.py (sharded_state_dict:
// layers stacked along a first dimension, or each under its own name), transformer/mlp.py (gate and up apart),
// transformer/moe/experts.py (experts stacked along a dimension behind that of layers, or each under its own name).
#include <algorithm>
#include <filesystem>
#include <map>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/torch_files/dcp_folder.h>
#include <drivetrain/toolkit/torch_files/torch_checkpoint.h>

#include "arguments.h"
#include "names.h"
#include "readers.h"
#include "settings.h"

namespace drivetrain::megatron {
namespace {

using Sizes = DcpFolder::Sizes;

constexpr int64_t kMostLayers = 100000;  // and experts

// A tensor of the folder, and what it is of the model's.
struct Stored {
  WeightName name;
  Sizes shape;                   // of one layer, of one expert
  int64_t layers = 0;            // that lie one after another; 0: one tensor
  int64_t experts = 0;           // the same
  int64_t halves = 1, half = 0;  // gate or up alone: half 0 or 1 of two
  std::vector<DcpFolder::Item> items{};

  size_t stacked() const { return (layers > 0 ? 1 : 0) + (experts > 0 ? 1 : 0); }
  std::string full(int64_t layer, int64_t expert) const {
    WeightName of = name;
    if (layers > 0) of.layer = layer;
    if (experts > 0) of.rest = of_expert(expert, of.rest);
    return "model/" + of.full();
  }
};

class DistReader {
 public:
  explicit DistReader(const Place& place)
      : place_(place), folder_(place.folder), made_(std::make_shared<TorchCheckpoint>(place.folder)) {}

  std::shared_ptr<const Checkpoint> read() {
    read_common();
    for (const auto& [name, shape] : folder_.shapes()) {
      if (name.find("optimizer.") != std::string::npos) optimizer_ = true;
      if (auto weight = weight_name(name)) stored_.emplace(name, describe(name, std::move(*weight), shape));
    }
    folder_.each_item([&](const std::string& name) { return stored_.count(name) > 0; },
                      [&](const DcpFolder::Item& item) { stored_.at(item.name).items.push_back(item); });
    for (const auto& [name, stored] : stored_) add(name, stored);
    made_->finish();
    set_facts();
    return made_;
  }

 private:
  void read_common() {
    const std::string path = place_.folder + "/common.pt";
    std::error_code unknown;
    if (!std::filesystem::exists(path, unknown)) {
      said_.notes.push_back(
          concat(path, ": is not there, so nothing but shapes can be compared with the model's options"));
      return;
    }
    const auto common = TorchFile::open(path);
    check_version(*common, false);
    said_ = said_of_model(*common);
    step_ = iteration_of(*common);
  }

  Stored describe(const std::string& name, WeightName weight, const Sizes& shape) const {
    Stored stored{std::move(weight), shape};
    std::string& rest = stored.name.rest;
    const auto take_first = [&](const char* why) {
      if (stored.shape.empty() || stored.shape[0] < 1 || stored.shape[0] > kMostLayers) throw wrong(name, why);
      const int64_t count = stored.shape[0];
      stored.shape.erase(stored.shape.begin());
      return count;
    };
    if (stored.name.in_layers && !stored.name.layer) stored.layers = take_first("has no dimension of layers");
    if (stored.name.in_layers && rest.starts_with(kStackedExperts)) {
      stored.experts = take_first("has no dimension of experts");
      rest.erase(0, std::string_view(kStackedExperts).size());
    }
    const bool gate = rest.ends_with("_w"), up = rest.ends_with("_v");
    if ((gate || up) && (in_mlp(rest).starts_with("linear_fc1.") || rest.starts_with("linear_fc1."))) {
      if (stored.shape.empty()) throw wrong(name, "has no rows");
      stored.halves = 2, stored.half = up ? 1 : 0;
      rest.resize(rest.size() - 2);
    }
    return stored;
  }

  Error wrong(const std::string& name, const char* what) const {
    return fail(ErrorCode::checkpoint, place_.folder, ": tensor \"", name, "\" ", what,
                "\n   is the folder what Megatron-LM saved?");
  }

  void add(const std::string& name, const Stored& stored) {
    if (stored.items.empty()) throw wrong(name, "has a name and a shape, and no values");
    Sizes whole = stored.shape;
    if (stored.halves == 2 && __builtin_mul_overflow(whole[0], 2, whole.data()))
      throw wrong(name, "has a shape that cannot be");
    for (int64_t layer = 0; layer < std::max<int64_t>(stored.layers, 1); ++layer)
      for (int64_t expert = 0; expert < std::max<int64_t>(stored.experts, 1); ++expert) {
        const std::string full = stored.full(layer, expert);
        if (stored.halves == 1 || !made_->contains(full)) made_->add(full, whole, stored.items.front().values.dtype);
      }
    for (const DcpFolder::Item& item : stored.items) add_part(stored, item);
  }

  // A part holds some of some layers, and of some of their experts.
  void add_part(const Stored& stored, const DcpFolder::Item& item) {
    const auto stacked = static_cast<std::ptrdiff_t>(stored.stacked());
    const Sizes offsets(item.offsets.begin() + stacked, item.offsets.end()),
        sizes(item.values.shape.begin() + stacked, item.values.shape.end());
    const size_t of_experts = stored.layers > 0 ? 1 : 0;
    const int64_t layers = stored.layers > 0 ? item.values.shape[0] : 1,
                  first_layer = stored.layers > 0 ? item.offsets[0] : 0;
    const int64_t experts = stored.experts > 0 ? item.values.shape[of_experts] : 1,
                  first_expert = stored.experts > 0 ? item.offsets[of_experts] : 0;
    const int64_t each = layers > 0 && experts > 0 ? item.values.numel() / layers / experts : 0;
    const int64_t below = stored.half * (stored.shape.empty() ? 0 : stored.shape[0]);
    for (ChunkBox part : boxes_of_chunk(stored.shape, offsets, sizes)) {
      part.box.row += below;
      for (int64_t i = 0; i < layers; ++i)
        for (int64_t e = 0; e < experts; ++e)
          made_->add_box(stored.full(first_layer + i, first_expert + e), part.box, item.file, item.values,
                         (i * experts + e) * each + part.first);
    }
  }

  void set_facts() {
    Value& facts = made_->set_facts();
    facts.set("format", "Megatron-LM, form torch_dist"), facts.set("naming", "megatron_core"), facts.set("step", step_);
    facts.set("model", said_.facts);
    Value::Array notes;
    for (const std::string& note : place_.notes) notes.emplace_back(note);
    for (const std::string& note : said_.notes) notes.emplace_back(note);
    if (optimizer_) notes.emplace_back(optimizer_note(place_.folder));
    facts.set("notes", std::move(notes));
  }

  const Place& place_;
  const DcpFolder folder_;
  const std::shared_ptr<TorchCheckpoint> made_;
  std::map<std::string, Stored> stored_;  // by name in the folder
  bool optimizer_ = false;
  int64_t step_ = 0;
  SaidOfModel said_;
};

}  // namespace

std::shared_ptr<const Checkpoint> read_dist(const Place& place) { return DistReader(place).read(); }

}  // namespace drivetrain::megatron
