#!/usr/bin/env python3
"""What a run on text learned, in two facts. Python 3 standard library only.

    quickstart_report.py RUN_FOLDER [--sample FILE]

1. The validation loss of the run beside that of byte tables fitted on the same training part: the best guess of the next
   byte from the two and from the three before it. A model that beats them has learned something longer.
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


def split_of(run):
    """(training paths, validation paths) as the run's dataset split them, from dataset_files.json of the run folder:
    {"root": FOLDER, "train": [PATH...], "validation": [PATH...]}, paths relative to root and in the order of reading."""
    split = json.loads((run / "dataset_files.json").read_text())
    root = Path(split.get("root", "/"))
    return [root / path for path in split["train"]], [root / path for path in split["validation"]]


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

    def probability(self, gram, longest=3):
        """Of the newest byte of a run of four, given the `longest` bytes before it."""
        guess = 1 / 256
        for order in range(longest + 1):
            part = gram >> 8 * (3 - order)
            context = part & ((1 << 8 * order) - 1)
            seen, followers = self.seen[order][context], self.followers[order][context]
            if seen:
                guess = (self.counts[order][part] + followers * guess) / (seen + followers)
        return guess

    def loss(self, grams, longest=3):
        """Mean negative logarithm over a Counter of runs of four bytes, in nats per byte."""
        return -sum(n * math.log(self.probability(gram, longest)) for gram, n in grams.items()) / sum(grams.values())


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
    train, validation = split_of(arguments.run)

    ours = last_validation_loss(arguments.run)
    table, unseen = ByteTable(count_grams(text_of(train))), count_grams(text_of(validation))
    print(f"validation loss   {'none in metrics.jsonl' if ours is None else f'{ours:.3f}'} nats per byte, of the model")
    for longest in (2, 3):
        print(f"                  {table.loss(unseen, longest):.3f} of a table of the {longest} bytes before, fitted on the "
              f"same {len(train)} training files")
    if arguments.sample:
        known, all_of_them = known_identifiers(arguments.sample.read_bytes(), train)
        share = 100 * known / max(all_of_them, 1)
        print(f"identifiers       {known} of {all_of_them} in the sample ({share:.0f} %) occur in the training text")
    return 0


if __name__ == "__main__":
    sys.exit(main())
