// Source: megatron/core/dist_checkpointing/strategies/torch.py; transformer/transformer_block.py (sharded_state_dict:
// layers stacked along a first dimension, or each under its own name), transformer/mlp.py (gate and up apart).
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

constexpr int64_t kMostLayers = 100000;

// A tensor of the folder, and what it is of the model's.
struct Stored {
  WeightName name;
  Sizes shape;                   // of one layer
  int64_t layers = 0;            // that lie one after another; 0: one tensor
  int64_t halves = 1, half = 0;  // gate or up alone: half 0 or 1 of two
  std::vector<DcpFolder::Item> items{};

  std::string full(int64_t layer) const {
    WeightName of = name;
    if (layers > 0) of.layer = layer;
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
    if (stored.name.in_layers && !stored.name.layer) {
      if (shape.empty() || shape[0] < 1 || shape[0] > kMostLayers) throw wrong(name, "has no dimension of layers");
      stored.layers = shape[0];
      stored.shape.erase(stored.shape.begin());
    }
    const bool gate = rest.ends_with("_w"), up = rest.ends_with("_v");
    if (rest.starts_with("mlp.linear_fc1.") && (gate || up)) {
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
    for (int64_t layer = 0; layer < std::max<int64_t>(stored.layers, 1); ++layer) {
      const std::string full = stored.full(layer);
      if (stored.halves == 1 || !made_->contains(full)) made_->add(full, whole, stored.items.front().values.dtype);
    }
    for (const DcpFolder::Item& item : stored.items) add_part(stored, item);
  }

  // A part holds some of some layers.
  void add_part(const Stored& stored, const DcpFolder::Item& item) {
    const bool stacked = stored.layers > 0;
    const Sizes offsets(item.offsets.begin() + stacked, item.offsets.end()),
        sizes(item.values.shape.begin() + stacked, item.values.shape.end());
    const int64_t layers = stacked ? item.values.shape[0] : 1, first = stacked ? item.offsets[0] : 0;
    const int64_t each = layers > 0 ? item.values.numel() / layers : 0;
    const int64_t below = stored.half * (stored.shape.empty() ? 0 : stored.shape[0]);
    for (ChunkBox part : boxes_of_chunk(stored.shape, offsets, sizes)) {
      part.box.row += below;
      for (int64_t i = 0; i < layers; ++i)
        made_->add_box(stored.full(first + i), part.box, item.file, item.values, i * each + part.first);
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
