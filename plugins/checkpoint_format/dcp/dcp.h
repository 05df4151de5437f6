// Folders of torch.distributed.checkpoint: a pickle that says where each part of each tensor is, and files of many
// torch.save archives. Source: pytorch torch/distributed/checkpoint/{filesystem,metadata}.py.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <drivetrain/checkpoint_store.h>

namespace drivetrain::dcp {

inline constexpr const char* kMetadata = ".metadata";

std::shared_ptr<const Checkpoint> read_folder(const std::string& folder);
void write_folder(const std::string& folder, const Checkpoint& state);

// What the runtime calls a tensor that a state dict has under these keys: {"model", "wte.weight"} is
// "model/wte.weight", {"optimizer", "state", "wte.weight", "exp_avg"} is "optimizer/wte.weight.exp_avg". Empty: it is
// no such thing.
std::string name_of_path(const std::vector<std::string>& path);

// The part of a tensor that begins at `offsets` and has `sizes`, as boxes of the matrix that the tensor is seen as,
// each with its first element in the part and with rows that follow each other there.
struct ChunkBox {
  StateBox box;
  int64_t first = 0;
};
std::vector<ChunkBox> boxes_of_chunk(const std::vector<int64_t>& shape, const std::vector<int64_t>& offsets,
                                     const std::vector<int64_t>& sizes);

}  // namespace drivetrain::dcp
