#!/usr/bin/env python3
"""Launch lines of DeepSpeed's documentation and examples: launch_lines_test.py PROGRAM. The same options (or those that
launch_lines.json says, with the reason) start the ranks that DeepSpeed would start, on the same slots of the same hosts,
in the same order: what `launch --dry-run` prints against what DeepSpeed's own functions computed."""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ENTRIES = json.loads(pathlib.Path(__file__).with_name("launch_lines.json").read_text())
RANK = re.compile(r"^(\S+): cd .* RANK=(\d+) LOCAL_RANK=(\d+) WORLD_SIZE=(\d+) LOCAL_WORLD_SIZE=(\d+) .* MASTER_PORT=(\S+)")
DEVICES = re.compile(r" CUDA_VISIBLE_DEVICES=(\S+)")


def launcher_words(entry):
    """Variables, and the options of the launcher: those before the script."""
    words = shlex.split(entry["line"])
    begin = words.index("deepspeed")
    script = next(i for i, word in enumerate(words) if word.endswith(".py"))
    options = shlex.split(entry["ours"]) if "ours" in entry else words[begin + 1:script]
    return dict(word.split("=", 1) for word in words[:begin]), options


def hostfile_of(options):
    """The path that they name, with the option's own word where it is written with =."""
    for i, word in enumerate(options):
        if word in ("--hostfile", "-H"):
            return i + 1, options[i + 1]
        if word.startswith("--hostfile="):
            return i, word.split("=", 1)[1]
    return None, None


def dry_run(program, entry, folder):
    variables, options = launcher_words(entry)
    at, path = hostfile_of(options)
    if path:
        options[at] = options[at].replace(path, f"{folder}/hosts")
        (folder / "hosts").write_text(entry["hostfile"])
    (folder / "config.json").write_text("{}")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA", "SLURM", "PBS", "NCCL"))}
    return subprocess.run([program, "launch", *options, "--dry-run", "config.json"], cwd=folder, capture_output=True,
                          text=True, env={**environment, **variables})


def ranks_of(output, variables):
    """(host, slot, rank, local rank, world size), and the ports."""
    ranks, ports = [], set()
    for line in output.splitlines():
        if not (found := RANK.match(line)):
            continue
        host, rank, local, world, here, port = found.groups()
        devices = DEVICES.search(line)
        visible = devices[1] if devices else variables.get("CUDA_VISIBLE_DEVICES")
        slots = visible.split(",") if visible else [str(i) for i in range(int(here))]
        ranks.append((host, int(slots[int(local)]), int(rank), int(local), int(world)))
        ports.add(port)
    return ranks, ports


def wanted_of(entry):
    world = entry["world"]
    size, rank, ranks = sum(map(len, world.values())), 0, []
    for host, slots in world.items():
        for local, slot in enumerate(slots):
            if entry.get("node", host) == host:
                ranks.append((host, slot, rank, local, size))
            rank += 1
    return ranks


def problem_of(program, entry):
    with tempfile.TemporaryDirectory() as folder:
        ended = dry_run(program, entry, pathlib.Path(folder))
    if ended.returncode != 0:
        return f"exit {ended.returncode}: {ended.stderr}"
    if "needs" in entry and not re.search(rf"^launcher: .*\b{re.escape(entry['needs'])}\b", ended.stdout, re.M):
        return f"wanted to be started by {entry['needs']}:\n{ended.stdout}"
    ranks, ports = ranks_of(ended.stdout, launcher_words(entry)[0])
    if ranks != wanted_of(entry):
        return f"wanted {wanted_of(entry)}\n  got {ranks}"
    if "port" in entry and ports != {str(entry["port"])}:
        return f"wanted port {entry['port']}, got {ports}"
    return None


def main():
    program, failed, done = pathlib.Path(sys.argv[1]).resolve(), 0, 0
    for entry in ENTRIES:
        if "needs" in entry and not shutil.which(entry["needs"]):
            print(f"left out, for there is no {entry['needs']}: {entry['line']}")
            continue
        done += 1
        if problem := problem_of(program, entry):
            failed += 1
            print(f"{entry['from']}\n  {entry['line']}\n  {problem}")
    print(f"{done} lines, {failed} failed")
    sys.exit(1 if failed or done < 15 else 0)


if __name__ == "__main__":
    main()
