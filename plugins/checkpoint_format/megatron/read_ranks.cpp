// Source: megatron/training/checkpointing.py (generate_state_dict, get_checkpoint_name) and the layouts that
// tools/checkpoint/loader_{core,legacy}.py put together.
#include <algorithm>
#include <map>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/torch_files/torch_checkpoint.h>

#include "arguments.h"
#include "join_parts.h"
#include "readers.h"
#include "settings.h"

namespace drivetrain::megatron {
namespace {

using Kind = PickleNode::Kind;
using File = TorchCheckpoint::File;

constexpr int kDeepest = 4;             // dicts in dicts, of the old classes
constexpr size_t kMostNames = 1000000;  // in a file

// A tensor of one rank's file. The number in its name is that of the stage's own count.
struct Held {
  WeightName name;
  TorchTensor tensor;
};
using Holdings = std::map<std::string, Held>;  // by full name

class RanksReader {
 public:
  explicit RanksReader(const Place& place)
      : place_(place), made_(std::make_shared<TorchCheckpoint>(place.folder)), notes_(place.notes) {
    for (const std::vector<std::string>& stages : rank_files(place.folder)) {
      files_.emplace_back();
      for (const std::string& path : stages) files_.back().push_back(TorchFile::open(path));
    }
  }

  std::shared_ptr<const Checkpoint> read() {
    check_files();
    const size_t chunks = chunks_of(*files_[0][0]).size();
    // Interleaved stages: every stage's first chunk comes before any second one.
    for (size_t chunk = 0; chunk < chunks; ++chunk)
      for (size_t stage = 0; stage < files_[0].size(); ++stage) read_chunk(stage, chunk);
    made_->finish();
    set_facts();
    return made_;
  }

 private:
  void check_files() {
    const TorchFile& first = *files_[0][0];
    const auto of_first = [&](const char* option, size_t found) {
      const int64_t saved = option_of(first, option);
      if (saved != 0 && saved != static_cast<int64_t>(found))
        throw fail(ErrorCode::checkpoint, first.path(), ": was saved with ", option, " ", saved, ", and files of ",
                   found, " are there\n   bring the files of all ranks into this folder");
    };
    said_ = said_of_model(first);
    notes_.insert(notes_.end(), said_.notes.begin(), said_.notes.end());
    of_first("tensor_model_parallel_size", files_.size());
    of_first("pipeline_model_parallel_size", files_[0].size());
    for (const std::vector<File>& stages : files_)
      for (const File& file : stages) {
        check_version(*file, true);
        if (const Value facts = said_of_model(*file).facts; !(facts == said_.facts))
          throw fail(ErrorCode::checkpoint, file->path(), ": its args say of the model ", facts.to_json(),
                     "; those of ", first.path(), " say ", said_.facts.to_json(),
                     "\n   bring files of one checkpoint into this folder");
        if (iteration_of(*file) != iteration_of(first) || chunks_of(*file).size() != chunks_of(first).size())
          throw fail(ErrorCode::checkpoint, file->path(), ": is of iteration ", iteration_of(*file), " and has ",
                     chunks_of(*file).size(), " parts of the model; ", first.path(), " is of iteration ",
                     iteration_of(first), " and has ", chunks_of(first).size(),
                     "\n   bring files of one checkpoint into this folder");
      }
  }

  // The state dicts of the model: one, or one per virtual stage.
  static std::vector<const PickleNode*> chunks_of(const TorchFile& file) {
    if (const PickleNode* const whole = file.tree().find(file.root(), "model")) return {whole};
    std::vector<const PickleNode*> list;
    while (const PickleNode* const chunk = file.tree().find(file.root(), concat("model", list.size())))
      list.push_back(chunk);
    if (list.empty())
      throw fail(ErrorCode::checkpoint, file.path(), ": has no \"model\"\n   a file that Megatron-LM saved is wanted");
    return list;
  }

  void collect(const TorchFile& file, const PickleNode& dict, const std::string& before, int depth, Holdings& into) {
    for (const auto& [key, value] : file.tree().pairs(dict, "the model's state")) {
      // A dict may stand in others again and again.
      if (++names_ > kMostNames)
        throw fail(ErrorCode::checkpoint, file.path(), ": has more than ", kMostNames, " names in its model");
      if (key->kind != Kind::text) continue;
      const std::string name = before + key->text;
      if (value->kind == Kind::dict && depth < kDeepest) collect(file, *value, name + ".", depth + 1, into);
      if (!TorchFile::is_tensor(*value)) continue;
      const auto weight = weight_name(name);
      if (!weight) continue;
      const std::string full = weight->full();
      if (!into.emplace(full, Held{*weight, file.tensor(*value, name)}).second)
        throw fail(ErrorCode::checkpoint, file.path(), ": tensor \"", full, "\" is there twice, once as \"", name,
                   "\"\n   is the file what Megatron-LM saved?");
    }
  }

  // Adds what one stage holds of the model, from all tensor ranks.
  void read_chunk(size_t stage, size_t chunk) {
    std::vector<Holdings> ranks(files_.size());
    for (size_t rank = 0; rank < files_.size(); ++rank) {
      const TorchFile& file = *files_[rank][stage];
      names_ = 0;
      collect(file, *chunks_of(file)[chunk], "", 0, ranks[rank]);
      check_same_names(*files_[0][stage], ranks[0], file, ranks[rank]);
    }
    int64_t layers = 0;
    for (const auto& [full, held] : ranks[0]) layers = std::max(layers, held.name.layer.value_or(-1) + 1);
    for (int64_t i = 0; i < layers; ++i)
      if (!in_layer(ranks[0], i, "self_attention.linear_qkv.weight"))
        throw fail(ErrorCode::checkpoint, files_[0][stage]->path(), ": has ", layers, " layers, and tensor \"",
                   WeightName{i, "self_attention.linear_qkv.weight", true}.full(),
                   "\" is not there\n   only whole GPT models are read: is the file what Megatron-LM saved?");
    for (const auto& [full, held] : ranks[0]) {
      WeightName name = held.name;
      std::vector<RankPart> parts;
      for (size_t rank = 0; rank < ranks.size(); ++rank)
        parts.push_back({files_[rank][stage], ranks[rank].at(full).tensor});
      const bool gated = name.layer && has_gate(ranks[0], name);
      if (name.layer) *name.layer += layers_;
      join_parts(*made_, name.full(), cut_of(name, gated), parts);
    }
    layers_ += layers;
  }

  static void check_same_names(const TorchFile& first, const Holdings& wanted, const TorchFile& file,
                               const Holdings& found) {
    const auto check = [](const TorchFile& a, const Holdings& has, const TorchFile& b, const Holdings& lacks) {
      for (const auto& [full, held] : has)
        if (!lacks.count(full))
          throw fail(ErrorCode::checkpoint, b.path(), ": tensor \"", full, "\" is missing; ", a.path(),
                     " has its part\n   bring files of one checkpoint into this folder");
    };
    check(first, wanted, file, found);
    check(file, found, first, wanted);
  }

  static const TorchTensor* in_layer(const Holdings& rank, int64_t layer, const std::string& name) {
    const auto found = rank.find(WeightName{layer, name, true}.full());
    return found == rank.end() ? nullptr : &found->second.tensor;
  }

  // Gate and up make the first matrix of an MLP twice as high as the second is wide.
  static bool has_gate(const Holdings& rank, const WeightName& name) {
    const std::string_view mlp = in_mlp(name.rest);
    if (mlp.empty()) return false;
    const std::string before = name.rest.substr(0, name.rest.size() - mlp.size());
    const TorchTensor *first = in_layer(rank, *name.layer, before + "linear_fc1.weight"),
                      *second = in_layer(rank, *name.layer, before + "linear_fc2.weight");
    return first && second && first->shape.size() == 2 && second->shape.size() == 2 && first->shape[0] % 2 == 0 &&
           first->shape[0] / 2 == second->shape[1];
  }

  void set_facts() {
    const TorchFile& first = *files_[0][0];
    if (first.tree().find(first.root(), "optimizer")) notes_.push_back(optimizer_note(place_.folder));
    Value& facts = made_->set_facts();
    facts.set("format",
              concat("Megatron-LM, form torch, ", files_.size(), " tensor x ", files_[0].size(), " pipeline ranks"));
    facts.set("naming", "megatron_core"), facts.set("step", iteration_of(first));
    facts.set("model", said_.facts);
    Value::Array notes;
    for (const std::string& note : notes_) notes.emplace_back(note);
    facts.set("notes", std::move(notes));
  }

  const Place& place_;
  const std::shared_ptr<TorchCheckpoint> made_;
  std::vector<std::vector<File>> files_;  // by tensor rank and stage
  size_t names_ = 0;                      // seen in a file
  int64_t layers_ = 0;                    // of the stages before
  std::vector<std::string> notes_;
  SaidOfModel said_;
};

}  // namespace

std::shared_ptr<const Checkpoint> read_ranks(const Place& place) { return RanksReader(place).read(); }

}  // namespace drivetrain::megatron
