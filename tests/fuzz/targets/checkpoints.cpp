// Folders of other programs, in which one pickle is the input. Its first byte chooses the folder and the file.
#include <drivetrain/toolkit/torch_files/torch_checkpoint.h>

#include <ATen/ops/empty.h>

#include <filesystem>

#include "all.h"
#include "checkpoint_format/dcp/dcp.h"
#include "checkpoint_format/deepspeed/open_tag.h"
#include "checkpoint_format/megatron/readers.h"
#include "scratch.h"
#include "torch_files.h"

namespace drivetrain::fuzz {
namespace {

namespace fs = std::filesystem;
using Opened = std::shared_ptr<const Checkpoint>;

Opened open_deepspeed(const std::string& folder) {
  std::vector<std::string> notes;
  return deepspeed::open_tag(deepspeed::list_files(deepspeed::find_tag_folder(folder, "", notes)), notes);
}
Opened open_ranks(const std::string& folder) { return megatron::read_ranks(megatron::find_place(folder, "")); }
Opened open_dist(const std::string& folder) { return megatron::read_dist(megatron::find_place(folder, "")); }

struct Case {
  const char* folder;  // of the golden data
  const char* file;    // in it: an archive, or a pickle alone where its name begins with a dot
  Opened (*open)(const std::string& folder);
};
constexpr const char* kMetadata = "iter_0000040/.metadata";
const Case kCases[] = {
    {"deepspeed_checkpoints/zero0", "global_step2/mp_rank_00_model_states.pt", open_deepspeed},
    {"deepspeed_checkpoints/zero2", "global_step2/mp_rank_00_model_states.pt", open_deepspeed},
    {"deepspeed_checkpoints/zero2", "global_step2/zero_pp_rank_0_mp_rank_00_optim_states.pt", open_deepspeed},
    {"deepspeed_checkpoints/zero3", "global_step2/zero_pp_rank_0_mp_rank_00_model_states.pt", open_deepspeed},
    {"deepspeed_checkpoints/zero3", "global_step2/zero_pp_rank_1_mp_rank_00_optim_states.pt", open_deepspeed},
    {"deepspeed_checkpoints/bf16_zero1", "global_step2/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt", open_deepspeed},
    {"deepspeed_checkpoints/dcp", ".metadata", dcp::read_folder},
    {"megatron_checkpoints/ranks_gpt2", "iter_0000040/mp_rank_01_000/model_optim_rng.pt", open_ranks},
    {"megatron_checkpoints/ranks_old_gpt2", "iter_0000040/mp_rank_00_001/model_optim_rng.pt", open_ranks},
    {"megatron_checkpoints/ranks_llama", "release/mp_rank_01/model_optim_rng.pt", open_ranks},
    {"megatron_checkpoints/dist_layers_llama", kMetadata, open_dist},
    {"megatron_checkpoints/dist_stacked_llama", kMetadata, open_dist},
    {"megatron_checkpoints/dist_layers_llama", "iter_0000040/common.pt", open_dist},
};

bool is_plain_pickle(const Case& one) { return fs::path(one.file).filename().string().starts_with('.'); }

// A copy of the folder and the records of its file, made once.
struct Prepared {
  std::string folder;
  std::vector<StoredRecord> records;
  size_t pickle = 0;
};
const Prepared& prepared(const Case& one) {
  static std::map<const Case*, Prepared> all;
  const auto [place, fresh] = all.try_emplace(&one);
  Prepared& made = place->second;
  if (!fresh) return made;
  const std::string golden = source_path(std::string("tests/golden/data/") + one.folder);
  made.folder = scratch_path(concat("case", &one - kCases, "/folder"));
  fs::copy(golden, made.folder, fs::copy_options::recursive);
  if (is_plain_pickle(one)) return made;
  made.records = records_of(golden + "/" + one.file);
  while (!made.records[made.pickle].name.ends_with("data.pkl")) ++made.pickle;
  return made;
}

void read_all(const Checkpoint& checkpoint) {
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    const StateBox whole = whole_of(tensor.shape);
    if (whole.columns > 0 && whole.rows > (int64_t{1} << 20) / whole.columns) continue;
    checkpoint.read(tensor.name, whole, at::empty({whole.rows, whole.columns}, at::TensorOptions(tensor.dtype)));
  }
}

void read_checkpoints(const std::string& input) {
  if (input.empty()) throw fail(ErrorCode::checkpoint, "no case is chosen");
  const Case& one = kCases[static_cast<unsigned char>(input[0]) % std::size(kCases)];
  const Prepared& place = prepared(one);
  std::string bytes = input.substr(1);
  if (!is_plain_pickle(one)) {
    std::vector<StoredRecord> records = place.records;
    records[place.pickle].bytes = std::move(bytes);
    bytes = archive_of(records);
  }
  scratch_file(concat("case", &one - kCases, "/folder/", one.file), bytes);
  read_all(*one.open(place.folder));
}

Inputs checkpoints_seeds() {
  Inputs inputs;
  for (const Case& one : kCases) {
    const Prepared& place = prepared(one);
    const std::string pickle = is_plain_pickle(one)
                                   ? source_file(concat("tests/golden/data/", one.folder, "/", one.file))
                                   : place.records[place.pickle].bytes;
    inputs.push_back(std::string(1, static_cast<char>(&one - kCases)) + pickle);
  }
  return inputs;
}

}  // namespace

Target checkpoints_target() {
  return {"checkpoints",
          "checkpoint folders of other programs",
          read_checkpoints,
          checkpoints_seeds,
          pickle_words(),
          "",
          8};
}

}  // namespace drivetrain::fuzz
