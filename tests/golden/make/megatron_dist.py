"""Form "torch_dist" of Megatron-LM: PyTorch's distributed checkpoint of shards that say themselves where they belong, as
megatron/core/dist_checkpointing/strategies/checkpointable.py makes them, with common.pt and metadata.json beside it."""
import io
import json
import re

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

COLUMNS = ("linear_proj.weight", "linear_fc2.weight")  # of which tensor ranks have columns
ROWS = ("word_embeddings.weight", "output_layer.weight", "linear_qkv.weight", "linear_fc1.weight")


class Shards(torch.Tensor):
    """Parts of a tensor, by where they begin. One process has those of all ranks."""

    @staticmethod
    def __new__(cls, shape, parts):
        return torch.Tensor._make_wrapper_subclass(cls, torch.Size(shape))

    def __init__(self, shape, parts):
        self.whole, self.parts = torch.Size(shape), parts

    def __create_write_items__(self, name, _):
        return [WriteItem(index=MetadataIndex(name, torch.Size(offsets), i), type=WriteItemType.SHARD,
                          tensor_data=TensorWriteData(chunk=ChunkStorageMetadata(torch.Size(offsets), part.size()),
                                                      properties=TensorProperties.create_from_tensor(part), size=self.whole))
                for i, (offsets, part) in enumerate(self.parts)]

    def __create_chunk_list__(self):
        return [ChunkStorageMetadata(torch.Size(offsets), part.size()) for offsets, part in self.parts]

    def __get_tensor_shard__(self, index):
        return next(part for offsets, part in self.parts if torch.Size(offsets) == index.offset)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise NotImplementedError(function)


class Planner(DefaultSavePlanner):
    def transform_object(self, write_item, found):
        return found  # bytes already


def parts_of(name, ranks):
    """Of one layer: shape of the whole, and the ranks' parts with where they begin. Gate and up are sharded apart."""
    tensors = [rank[name] for rank in ranks]
    count, rows = len(tensors), tensors[0].shape[0]
    if name.endswith("linear_fc1.weight"):
        halves = [tensor.chunk(2) for tensor in tensors]
        parts = [((half * count + rank) * (rows // 2), halves[rank][half]) for half in range(2) for rank in range(count)]
        return [rows * count, tensors[0].shape[1]], [((row, 0), part.clone()) for row, part in parts]
    if name.endswith(ROWS):
        return [rows * count, *tensors[0].shape[1:]], [((rank * rows, 0), part) for rank, part in enumerate(tensors)]
    if name.endswith(COLUMNS):
        width = tensors[0].shape[1]
        return [rows, width * count], [((0, rank * width), part) for rank, part in enumerate(tensors)]
    return list(tensors[0].shape), [((0,) * tensors[0].dim(), tensors[0])]


def split_gate(state):
    """singleton_local_shards: gate and up under names of their own."""
    for name in [name for name in state if name.endswith("linear_fc1.weight")]:
        shape, parts = state.pop(name)
        rows = shape[0] // 2
        for end, first in (("_w", 0), ("_v", rows)):
            half = [((offsets[0] - first, *offsets[1:]), part) for offsets, part in parts if first <= offsets[0] < first + rows]
            state[name + end] = [rows, *shape[1:]], half


def stack(state, layers):
    """One tensor for all layers, whose first dimension counts them."""
    stacked = {}
    for name, (shape, parts) in state.items():
        match = re.fullmatch(r"decoder\.layers\.(\d+)\.(.*)", name)
        if not match:
            stacked[name] = shape, parts
            continue
        _, all_parts = stacked.setdefault("decoder.layers." + match[2], ([layers, *shape], []))
        all_parts += [((int(match[1]), *offsets), part.unsqueeze(0)) for offsets, part in parts]
    return stacked


def save_dist(folder, ranks, common, iteration, layers, stacked):
    place = folder / f"iter_{iteration:07d}"
    place.mkdir(parents=True)
    state = {name: parts_of(name, ranks) for name in ranks[0]}
    if stacked:
        state = stack(state, layers)
    else:
        split_gate(state)
    state["optimizer.state.exp_avg.decoder.final_layernorm.weight"] = [2], [((0,), torch.ones(2))]
    saved = {name: Shards(*tensor) for name, tensor in state.items()}
    prefix = "decoder.layers." + ("" if stacked else "0.")
    for key in (prefix + "self_attention.linear_qkv._extra_state/shard_0_4", "rng_state/shard_0_2"):
        saved[key] = io.BytesIO()
        torch.save([None], saved[key])
    dcp.save(saved, storage_writer=dcp.FileSystemWriter(place, thread_count=2), planner=Planner(flatten_state_dict=False), no_dist=True)
    torch.save({**common, "optimizer": {"param_groups": [{"lr": 1e-3}]}}, place / "common.pt")
    (place / "metadata.json").write_text(json.dumps({"sharded_backend": "torch_dist", "sharded_backend_version": 1,
                                                     "common_backend": "torch", "common_backend_version": 1}))
    (folder / "latest_checkpointed_iteration.txt").write_text(str(iteration))
