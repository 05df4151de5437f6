#!/usr/bin/env python3
"""What DeepSpeed's own launcher makes of the lines in launch_lines.json: make_launch_lines.py [--check].

For the Python of `tools/setup/deps peers`, which has DeepSpeed 0.19.8. It writes which slots of which hosts have ranks, in
rank order, and the port if the line has one, as DeepSpeed's functions compute them; --check says whether that is what the file has.
"""
import argparse
import contextlib
import json
import os
import pathlib
import shlex
import sys
import tempfile
import unittest.mock

from deepspeed.launcher import runner

FILE = pathlib.Path(__file__).with_name("launch_lines.json")
REMOVED = {"--elastic_training": 0, "--min_elastic_nodes": 1, "--max_elastic_nodes": 1}  # by 0.19; they chose no ranks


def words_of(line):
    """Variables before the program, and the words after it."""
    words = shlex.split(line)
    begin = words.index("deepspeed")
    return dict(word.split("=", 1) for word in words[:begin]), words[begin + 1:]


def known(words):
    kept, skip = [], 0
    for word in words:
        if skip > 0:
            skip -= 1
        elif word in REMOVED:
            skip = REMOVED[word]
        else:
            kept.append(word)
    return kept


def resources(entry):
    """As main() of runner.py, from its arguments to the world that its launch.py is given."""
    variables, words = words_of(entry["line"])
    args = runner.parse_args(known(words))
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(entry.get("hostfile", ""))
        file.flush()
        pool = runner.fetch_hostfile(file.name) if "hostfile" in entry else None
    include = args.include
    if not pool and "CUDA_VISIBLE_DEVICES" in variables and not include and args.num_gpus <= 0:
        include = f"localhost:{variables['CUDA_VISIBLE_DEVICES']}"
    active = runner.parse_inclusion_exclusion(pool or {"localhost": entry["gpus"]}, include, args.exclude)
    active = runner.apply_num_nodes_and_gpus(active, args.num_nodes, args.num_gpus)
    return {"world": dict(active), **({"port": args.master_port} if "--master_port" in entry["line"] else {})}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    entries = json.loads(FILE.read_text())
    with contextlib.redirect_stdout(sys.stderr), unittest.mock.patch.dict(os.environ):
        made = [{**entry, **resources(entry)} for entry in entries]
    if check:
        differ = [new["line"] for old, new in zip(entries, made) if old != new]
        sys.exit("\n".join(["DeepSpeed says otherwise of:", *differ]) if differ else 0)
    lines = []
    for entry in made:
        fields = [f'    {json.dumps(key)}: {json.dumps(value)}' for key, value in entry.items()]
        lines.append("  {\n" + ",\n".join(fields) + "\n  }")
    FILE.write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
