#!/usr/bin/env python3
"""What a run on text learned, in two facts. Python 3 standard library only.

    quickstart_report.py RUN_FOLDER [--sample FILE]

1. The validation loss of the run beside that of a byte table of order 3: the best guess of the next byte from the three
   before it, fitted on the same training part and measured on the same bytes. A model that beats it has learned more.
2. With a sample: the share of its identifiers that occur in the training text.
"""
import argparse
import json
import math
import re
import sys
from collections import Counter
from pathlib import Path

IDENTIFIER = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")


def documents_of(entries):
    """{relative path: path} of the files, folders and globs of a text dataset, bytewise sorted, as the dataset finds them."""
    found = {}
    for entry in map(Path, entries):
        wild = [i for i, part in enumerate(entry.parts) if "*" in part or "?" in part]
        if entry.is_file():
            found[entry.name] = entry
            continue
        root = Path(*entry.parts[:wild[0]]) if wild else entry
        paths = root.glob("/".join(entry.parts[wild[0]:])) if wild else root.rglob("*")
        found.update((path.relative_to(root).as_posix(), path) for path in paths if path.is_file())
    return {name: found[name] for name in sorted(found, key=lambda name: name.encode())}


def dataset_options(resolved):
    return resolved["dataset"].get("params", resolved["dataset"])


def split_of(run, resolved):
    """(training paths, validation paths) as the run split them. Stops if the files are not those that it read."""
    facts = resolved["_resolved"]["data"]
    held_out = set(facts["validation"]["paths"])
    parts = {"train": [], "validation": []}
    for name, path in documents_of(dataset_options(resolved)["files"]).items():
        if path.stat().st_size:
            parts["validation" if name in held_out else "train"].append(path)
    for part, paths in parts.items():
        found = sum(path.stat().st_size + 1 for path in paths) - 1  # byte 0 stands between documents
        if (found, len(paths)) != (facts[part]["bytes"], facts[part]["files"]):
            sys.exit(f"error: the {part} part of {run} was {facts[part]['files']} files with {facts[part]['bytes']} bytes; "
                     f"there are now {len(paths)} with {found}. Train again, then ask for this report.")
    return parts["train"], parts["validation"]


def measured_grams(text, resolved):
    """The bytes that an evaluation of the run predicted, each with the three before it, as a Counter like count_grams: windows
    of the validation stream in the order of dataset/text (its README)."""
    length = dataset_options(resolved)["seq_length"]
    windows = (len(text) - 1) // length
    stride = max(1, round(windows * 0.618))
    while math.gcd(stride, windows) != 1:
        stride += 1
    grams = Counter()
    for row in range(resolved["eval_iters"] * resolved["train_batch_size"]):
        begin = row * stride % windows * length
        for last in range(max(begin + 1, 3), begin + length + 1):
            grams[int.from_bytes(text[last - 3:last + 1], "little")] += 1
    return grams


def last_validation_loss(run):
    """valid_loss of the last line of metrics.jsonl that has one, in nats per byte."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    losses = [row["valid_loss"] for row in map(json.loads, lines) if row.get("valid_loss") is not None]
    return losses[-1] if losses else None


def text_of(paths):
    """The documents one after another with byte 0 between them, as the run saw them."""
    return b"\0".join(Path(path).read_bytes() for path in paths)


def count_grams(text):
    """Counter of all runs of four bytes, each as the 32-bit number that this machine reads them as."""
    view, grams = memoryview(text), Counter()
    for start in range(4):
        whole = (len(text) - start) // 4 * 4
        grams.update(view[start:start + whole].cast("I"))
    return grams


class ByteTable:
    """Next byte from the three before it, with Witten-Bell smoothing: a context that was seen n times and with k different
    followers gives the weight k / (n + k) to the guess of the next shorter context, down to all bytes alike."""

    def __init__(self, grams):
        # counts[o] maps the last o + 1 bytes to how often they came; little-endian numbers keep the newest byte on top.
        self.counts = [Counter() for _ in range(3)] + [grams]
        for order in (2, 1, 0):
            shorter = self.counts[order]
            for gram, count in self.counts[order + 1].items():
                shorter[gram >> 8] += count
        self.seen = [Counter() for _ in range(4)]
        self.followers = [Counter() for _ in range(4)]
        for order in range(4):
            mask = (1 << 8 * order) - 1
            seen, followers = self.seen[order], self.followers[order]
            for gram, count in self.counts[order].items():
                seen[gram & mask] += count
                followers[gram & mask] += 1

    def probability(self, gram):
        """Of the newest byte of a run of four, given the three older ones."""
        guess = 1 / 256
        for order in range(4):
            part = gram >> 8 * (3 - order)
            context = part & ((1 << 8 * order) - 1)
            seen, followers = self.seen[order][context], self.followers[order][context]
            if seen:
                guess = (self.counts[order][part] + followers * guess) / (seen + followers)
        return guess

    def loss(self, grams):
        """Mean negative logarithm over a Counter of runs of four bytes, in nats per byte."""
        return -sum(n * math.log(self.probability(gram)) for gram, n in grams.items()) / sum(grams.values())


def known_identifiers(sample, paths):
    """(how many different identifiers of the sample occur in the files, how many there are)."""
    wanted = set(IDENTIFIER.findall(sample))
    known = set()
    for path in paths:
        known |= wanted.intersection(IDENTIFIER.findall(Path(path).read_bytes()))
    return len(known), len(wanted)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--sample", type=Path, help="what `drivetrain generate` printed")
    arguments = parser.parse_args()
    resolved = json.loads((arguments.run / "resolved.json").read_text())
    train, validation = split_of(arguments.run, resolved)

    ours = last_validation_loss(arguments.run)
    table = ByteTable(count_grams(text_of(train)))
    measured = measured_grams(text_of(validation), resolved)
    print(f"validation loss   {'none in metrics.jsonl' if ours is None else f'{ours:.3f}'} nats per byte, of the model")
    print(f"                  {table.loss(measured):.3f} nats per byte, of an order-3 byte table fitted on the "
          f"same {len(train)} files and measured on the same {sum(measured.values())} bytes")
    if arguments.sample:
        known, all_of_them = known_identifiers(arguments.sample.read_bytes(), train)
        share = 100 * known / max(all_of_them, 1)
        print(f"identifiers       {known} of {all_of_them} in the sample ({share:.0f} %) occur in the training text")
    return 0


if __name__ == "__main__":
    sys.exit(main())
