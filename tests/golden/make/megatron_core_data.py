"""What Megatron-Core's GPTDataset and BlendedDataset give, sample for sample. MEGATRON_CORE names the folder that
`tools/setup/deps megatron` prints; torch and numpy come from the `peers` set."""
import logging
import os
import pathlib
import random
import sys
import warnings

import numpy
import torch

VERSION = "0.16.1"
EOD = 7
VOCABULARY = 250
FNV = (0xcbf29ce484222325, 0x100000001b3)


def import_core():
    folder = os.environ.get("MEGATRON_CORE")
    if folder:
        sys.path.insert(0, folder)
    warnings.filterwarnings("ignore")
    try:
        import megatron.core
    except ModuleNotFoundError:
        sys.exit("megatron-core is missing: MEGATRON_CORE is the folder that tools/setup/deps megatron prints")
    if megatron.core.__version__ != VERSION:
        sys.exit(f"wanted megatron-core {VERSION}, found {megatron.core.__version__}")
    logging.disable(logging.CRITICAL)


class Tokenizer:
    """As much of one as the datasets ask for."""
    eod = EOD
    vocab_size = VOCABULARY
    unique_identifiers = {"class": "none"}


def write_pair(prefix, dtype, seed, documents, longest, sequences=1):
    """Documents of 1 to `longest` tokens, some without any; most end with EOD. `sequences`: the most that one is cut into."""
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder
    draw = random.Random(seed)
    builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=dtype)
    for number in range(documents):
        length = 0 if draw.random() < 0.04 else 1 + int((longest - 1) * draw.random()**2)
        tokens = [draw.randrange(100 if dtype == numpy.int8 else VOCABULARY) for _ in range(length)]
        if tokens and number % 5:
            tokens[-1] = EOD
        cuts = sorted(draw.randrange(length + 1) for _ in range(draw.randrange(sequences)))
        ends = [0, *cuts, length]
        builder.add_document(torch.tensor(tokens, dtype=torch.int64), [b - a for a, b in zip(ends, ends[1:])])
    builder.finalize(f"{prefix}.idx")


def datasets(case, folder):
    """Training and validation set of a case, whose paths are names in `folder`."""
    from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.datasets.utils import get_blend_from_list
    flat = [case["data_path"]] if isinstance(case["data_path"], str) else [
        word for entry in case["data_path"] for word in (entry if isinstance(entry, list) else [entry])]
    blend = get_blend_from_list([str(folder / w) if isinstance(w, str) else str(w) for w in flat])
    flags = {key: case.get(key, False) for key in ("reset_position_ids", "reset_attention_mask", "eod_mask_loss")}
    config = GPTDatasetConfig(random_seed=case["seed"], sequence_length=case["seq_length"], blend=blend, split=case["split"],
                              tokenizer=Tokenizer(), **flags)
    sizes = [case["train_samples"], case.get("valid_samples"), None if blend[1] is None else 1]
    return BlendedMegatronDatasetBuilder(GPTDataset, sizes, lambda: True, config).build()[:2]


def row(sample):
    """Tokens, labels (-100: they do not count), positions, and for each place where its document begins."""
    labels = torch.where(sample["loss_mask"] > 0, sample["labels"], -100)
    begins = (~sample["attention_mask"][0]).int().argmax(dim=1)
    return [x.to(torch.int64).numpy() for x in (sample["tokens"], labels, sample["position_ids"], begins)]


def digest(arrays):
    """FNV-1a, 64 bits, over the bytes of the arrays of int64."""
    value, prime = FNV
    for byte in b"".join(array.astype("<i8").tobytes() for array in arrays):
        value = (value ^ byte) * prime & 0xffffffffffffffff
    return f"{value:016x}"


def rows(dataset, most=None):
    count = len(dataset) if most is None else min(most, len(dataset))
    return [row(dataset[k]) for k in range(count)]


def write_names(folder):
    """The pairs that the golden cases read."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_pair(folder / "short", numpy.uint16, 1, 60, 40)
    write_pair(folder / "long", numpy.int32, 2, 25, 150)
    write_pair(folder / "cut", numpy.uint8, 3, 30, 60, sequences=4)
