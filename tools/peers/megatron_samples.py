"""Compares dataset/megatron with Megatron-Core sample for sample: megatron_samples.py ROW_DIGESTS (the program of row_digests.cpp).
Ends with 1 where a sample differs."""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy

from megatron_core_data import EOD, VOCABULARY, datasets, digest, import_core, rows, write_pair

TYPES = {"u8": numpy.uint8, "i8": numpy.int8, "i16": numpy.int16, "i32": numpy.int32, "i64": numpy.int64, "u16": numpy.uint16}
RESETS = {"reset_position_ids": True, "reset_attention_mask": True, "eod_mask_loss": True}
TWO = [[0.3, "u16"], [0.7, "i32"]]
SEVEN = [[3, "u8"], [0.01, "u16"], [11, "i32"], [1.7, "i64"], [2, "cut"], [2, "i16"], [0.2, "u16"]]
MANY = [[0.1 * (7 * i % 13 + 1), list(TYPES)[i % 6]] for i in range(40)]


def cases():
    """Name and case; every length is odd somewhere, so that no sample begins where a document does by chance."""
    for name in [*TYPES, "cut"]:
        yield f"one file, {name}", {"data_path": name, "seq_length": 33, "split": "969,30,1", "train_samples": 200, "valid_samples": 30}
    for epochs, samples in (("one epoch", 60), ("two, last apart", 100), ("three", 270), ("three, last apart", 200), ("ten", 900)):
        yield epochs, {"data_path": "u16", "seq_length": 31, "split": "80,20", "train_samples": samples}
    for length in (1, 2, 7, 64, 129, 1000):
        yield f"rows of {length}", {"data_path": "i32", "seq_length": length, "split": "90,5,5", "train_samples": 150,
                                    "valid_samples": 5}
    for split in ("100,0,0", "50,50,0", "1,1,1", "0.7,0.2,0.1", "949, 50, 1"):
        yield f"split {split}", {"data_path": "u8", "seq_length": 17, "split": split, "train_samples": 100}
    for seed in (0, 1, 1234, 2**32 - 1):
        yield f"seed {seed}", {"data_path": "cut", "seq_length": 15, "split": "8,2", "train_samples": 150, "seed": seed}
    for name, blend in (("blend of two", TWO), ("blend of seven", SEVEN), ("blend of forty", MANY)):
        for samples in (150, 1000, 3500):
            yield f"{name}, {samples}", {"data_path": blend, "seq_length": 29, "split": "85,15", "train_samples": samples,
                                         "valid_samples": samples // 10}
    yield "blend of one", {"data_path": [[1, "u16"]], "seq_length": 29, "split": "85,15", "train_samples": 400, "valid_samples": 9}
    yield "flat blend", {"data_path": [30, "u16", 70, "cut"], "seq_length": 9, "split": "85,15", "train_samples": 400,
                         "valid_samples": 41}
    yield "three by size", {"data_path": ["u16", "i32", "cut"], "seq_length": 21, "split": "85,15", "train_samples": 120}
    yield "three by size, all", {"data_path": ["u16", "i32", "cut"], "seq_length": 21, "split": "85,15", "train_samples": 10**6,
                                 "valid_samples": 10**6}
    yield "resets", {"data_path": "cut", "seq_length": 63, "split": "85,15", "train_samples": 200, **RESETS}
    yield "resets of a blend", {"data_path": TWO, "seq_length": 101, "split": "85,15", "train_samples": 200, "valid_samples": 20, **RESETS}
    for key in RESETS:
        yield f"only {key}", {"data_path": "u16", "seq_length": 40, "split": "85,15", "train_samples": 60, key: True}


def placed(path, folder):
    if isinstance(path, list):
        return [placed(item, folder) for item in path]
    return str(folder / path) if isinstance(path, str) else path


def epochs_of(notes):
    epochs = sorted({member["epochs"] for member in notes["train"]["files"].values()})
    return f"{epochs[0]}" if len(epochs) == 1 else f"{epochs[0]}-{epochs[-1]}"


def ours(program, case, folder, train, valid):
    params = {**case, "order": "megatron", "data_path": placed(case["data_path"], folder)}
    if any(case.get(key) for key in RESETS):
        params["eod"] = EOD
    file = folder / "params.json"
    file.write_text(json.dumps(params))
    run = subprocess.run([program, file, str(VOCABULARY), str(train), str(valid)], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{case}\n{run.stderr}")
    return json.loads(run.stdout)


def main():
    import_core()
    good, samples = True, 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for seed, (name, dtype) in enumerate(TYPES.items()):
            write_pair(folder / name, dtype, seed, 90 + 7 * seed, 60 + 11 * seed)
        write_pair(folder / "cut", numpy.uint16, 77, 80, 50, sequences=4)
        print("| case | positions | samples train, valid | epochs | equal |\n| --- | --- | --- | --- | --- |")
        for name, case in cases():
            case = {"seed": 42, **case}
            # Their own index, which the first run of ours makes for itself and the second finds, must be the same.
            before = ours(program := sys.argv[1], case, folder, 20, 0)["train"]
            theirs = [[digest(row) for row in rows(part)] if part is not None else [] for part in datasets(case, folder)]
            found = ours(program, case, folder, len(theirs[0]), len(theirs[1]))
            equal = [found["train"], found["valid"]] == theirs and before[:len(theirs[0])] == theirs[0][:20]
            good, samples = good and equal, samples + sum(map(len, theirs))
            print(f"| {name} | {case['seq_length']} | {len(theirs[0])}, {len(theirs[1])} | {epochs_of(found['notes'])} | "
                  f"{'yes' if equal else 'NO'} |", flush=True)
    print(f"\n{samples} samples compared")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
