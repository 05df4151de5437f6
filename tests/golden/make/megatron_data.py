"""megatron_data/: small token files written by Megatron-Core, and digests of the samples that its datasets make of them."""
import pathlib
import shutil
import tempfile

from golden_files import write_json
from megatron_core_data import VERSION, datasets, digest, import_core, rows, write_names

RESETS = {"reset_position_ids": True, "reset_attention_mask": True, "eod_mask_loss": True}
BLEND = [[0.3, "short"], [0.7, "long"]]
CASES = {
    "one_epoch": {"data_path": "short", "split": "969,30,1", "seq_length": 16, "seed": 1234, "train_samples": 30},
    "three_epochs": {"data_path": "short", "split": "80,20", "seq_length": 13, "seed": 42, "train_samples": 110},
    "last_epoch_apart": {"data_path": "cut", "split": "90,10,0", "seq_length": 16, "seed": 0, "train_samples": 75,
                         "valid_samples": 20},
    "row_of_many_documents": {"data_path": "short", "split": "1,1", "seq_length": 127, "seed": 7, "train_samples": 20,
                              "valid_samples": 3},
    "one_token": {"data_path": "short", "split": "99,1,0", "seq_length": 1, "seed": 5, "train_samples": 90},
    "blend": {"data_path": BLEND, "split": "80,20", "seq_length": 16, "seed": 1234, "train_samples": 120, "valid_samples": 40},
    "blend_of_three": {"data_path": [[2, "cut"], [1, "short"], [5.5, "long"]], "split": "90,10", "seq_length": 9, "seed": 3,
                       "train_samples": 200, "valid_samples": 11},
    "blend_of_twelve": {"data_path": [[0.1 * (3 * i % 7 + 1), ["cut", "short", "long"][i % 3]] for i in range(12)], "split": "80,20",
                        "seq_length": 10, "seed": 13, "train_samples": 90, "valid_samples": 13},
    "blend_of_one": {"data_path": [[1.0, "long"]], "split": "90,10", "seq_length": 16, "seed": 3, "train_samples": 80,
                     "valid_samples": 10},
    "flat_blend": {"data_path": [30, "short", 70, "cut"], "split": "80,20", "seq_length": 11, "seed": 9, "train_samples": 150,
                   "valid_samples": 9},
    "by_size": {"data_path": ["short", "long", "cut"], "split": "80,20", "seq_length": 16, "seed": 11, "train_samples": 50},
    "resets": {"data_path": "cut", "split": "80,20", "seq_length": 24, "seed": 2, "train_samples": 40, **RESETS},
    "resets_of_a_blend": {"data_path": BLEND, "split": "80,20", "seq_length": 20, "seed": 6, "train_samples": 40,
                          "valid_samples": 8, **RESETS},
}


def make(folder):
    import_core()
    place = pathlib.Path(folder) / "megatron_data"
    write_names(place)
    cases = {}
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        for file in place.glob("*.*"):
            if file.suffix in (".bin", ".idx"):
                shutil.copy(file, work)
        for name, case in CASES.items():
            train, valid = datasets(case, work)
            cases[name] = {**case, "train": [digest(r) for r in rows(train)], "valid": [digest(r) for r in rows(valid)]}
        keep_index(work, place / "index")
    write_json(place / "cases.json", {"made_by": {"megatron-core": VERSION}, "cases": cases})


def keep_index(work, place):
    """Megatron-Core's own index of the case last_epoch_apart. Its description names the place of the data as PREFIX."""
    place.mkdir(exist_ok=True)
    for file in sorted((work / "cut" / "cache" / "GPTDataset_indices").glob("*")):
        description = file.parent / (file.name[:32] + "-GPTDataset-train-description.txt")
        if not description.exists() or '"num_samples": 75' not in (text := description.read_text()):
            continue
        to = place / ("0" * 32 + file.name[32:])  # its digest is of a path that is gone
        if file == description:
            to.write_text(text.replace(str(work / "cut"), "PREFIX"))
        else:
            shutil.copy(file, to)
