// What torch.save writes: pickles, and zip archives of a pickle and the storages of its tensors.
#include <drivetrain/toolkit/torch_files/torch_file.h>

#include <set>

#include "all.h"
#include "scratch.h"
#include "torch_files.h"

namespace drivetrain::fuzz {
namespace {

constexpr const char* kTorchPlace = "fuzz.pt";
constexpr int64_t kMostElements = int64_t{1} << 20;

// Every node once: values may be their own parts.
template <class Use>
void each_node(const PickleNode& root, const Use& use) {
  std::set<const PickleNode*> seen;
  std::vector<const PickleNode*> left = {&root};
  while (!left.empty()) {
    const PickleNode* node = left.back();
    left.pop_back();
    if (!node || !seen.insert(node).second) continue;
    use(*node);
    left.insert(left.end(), node->items.begin(), node->items.end());
    left.insert(left.end(), node->more.begin(), node->more.end());
    left.push_back(node->callee), left.push_back(node->state);
  }
}

// Refusals are as good as values here.
template <class Call>
void ask(const Call& call) {
  try {
    call();
  } catch (const Error& e) {
    FUZZ_CHECK(e.code() == ErrorCode::checkpoint);
  }
}

void look_at(const PickleTree& tree, const PickleNode& node) {
  FUZZ_CHECK(!described(node).empty());
  ask([&] { tree.find(node, "exp_avg"); });
  ask([&] { tree.integers(node, "a shape"); });
  ask([&] { tree.pairs(node, "a state"); });
  ask([&] { tree.real(node, "a number"); });
}

void read_pickle(const std::string& input) {
  const PickleTree tree(input, kTorchPlace);
  each_node(tree.root(), [&](const PickleNode& node) { look_at(tree, node); });
}

void read_tensor(const TorchFile& file, const PickleNode& node) {
  const TorchTensor tensor = file.tensor(node, "a value");
  if (tensor.numel() > kMostElements) return;
  FUZZ_CHECK(file.read(tensor).numel() == tensor.numel());
}

void read_archive(const std::string& input) {
  const auto file = TorchFile::open(scratch_file(kTorchPlace, input));
  each_node(file->root(), [&](const PickleNode& node) {
    if (TorchFile::is_tensor(node)) ask([&] { read_tensor(*file, node); });
  });
  file->verify();
}

const std::vector<std::string>& archives() {
  static const std::vector<std::string> paths = {
      "deepspeed_checkpoints/zero2/global_step2/mp_rank_00_model_states.pt",
      "deepspeed_checkpoints/zero2/global_step2/zero_pp_rank_1_mp_rank_00_optim_states.pt",
      "deepspeed_checkpoints/zero3/global_step2/zero_pp_rank_0_mp_rank_00_optim_states.pt",
      "megatron_checkpoints/dist_layers_llama/iter_0000040/common.pt"};
  return paths;
}

Inputs archive_seeds() {
  Inputs files;
  for (const std::string& path : archives()) files.push_back(source_file("tests/golden/data/" + path));
  return files;
}

Inputs pickle_seeds() {
  Inputs pickles;
  for (const std::string& path : archives())
    for (StoredRecord& record : records_of(source_path("tests/golden/data/" + path)))
      if (record.name.ends_with("data.pkl")) pickles.push_back(std::move(record.bytes));
  pickles.push_back(source_file("tests/golden/data/deepspeed_checkpoints/dcp/.metadata"));
  return pickles;
}

}  // namespace

Target pickle_target() {
  return {"pickle", "pickles of torch.save", read_pickle, pickle_seeds, pickle_words(), kTorchPlace};
}
Target torch_file_target() {
  return {
      "torch_file", "archives of torch.save", read_archive, archive_seeds, {"PK\x01\x02", "PK\x03\x04", "PK\x05\x06"},
      kTorchPlace};
}

}  // namespace drivetrain::fuzz
