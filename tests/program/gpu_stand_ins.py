"""A tree of stand-ins for tests of tools/gpu_check, whose path is the first word of a test's command: nvidia-smi, the program and test
programs are scripts here."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

GPU_CHECK = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(GPU_CHECK.parent / "gpu"))  # for tests of its parts

# Of processes it tells the one that holds the memory, if there is one.
SMI = """#!/bin/sh
case "$*" in
  *compute-apps*) cat "$CALLS.held" 2>/dev/null ;;
  *) echo 'NVIDIA Stand-in H100, 81559 MiB, 580.1, 9.0' ;;
esac
"""
# What becomes of a run is in its config and in the environment; losses of the CPU are those of the GPU but for 1e-5. A run that
# would not end has a process for each rank: one that is killed ends it, one that is stopped is given up.
PROGRAM = """#!/usr/bin/env python3
import json, os, pathlib, signal, subprocess, sys, time
with open(os.environ["CALLS"], "a") as calls: print(*sys.argv[1:], os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE", "-"), file=calls)
files = [a for a in sys.argv if a.endswith(".json")]
if sys.argv[1] == "config": print(json.dumps([{"file": f, "code": 0, "problems": []} for f in files])); sys.exit()
config = json.loads(pathlib.Path(files[0]).read_text())
cuda = config.get("device") == "cuda"
def refuse(code, text): print("drivetrain: error:", text, file=sys.stderr); sys.exit(code)
if "DRIVETRAIN_GPU_CHECK" in os.environ:
    visible, shared = os.environ.get("CUDA_VISIBLE_DEVICES", "0"), os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE", "")
    if visible != "0": refuse(2, f"there is none to use: CUDA_VISIBLE_DEVICES={visible} shows none of the 1 of this host")
    if sys.argv[1] == "launch": refuse(2, "that needs NCCL 2.30.0 or newer" if shared == "1" else "rank 1 and another have one and the same GPU")
    if config["train_batch_size"] > 1000: refuse(4, "out of memory on the GPU: tried to allocate 32 GiB")
    held = pathlib.Path(os.environ["CALLS"] + ".held")
    pid = held.read_text().strip() if held.is_file() else ""
    if pid and pathlib.Path("/proc", pid).exists():
        refuse(4, f"out of memory on the GPU\\n   it is held by process {os.environ.get('NAMED', pid)} (python3, 80000 MiB)")
if os.environ.get("BROKEN", "1") == "1" and cuda and "bf16" in config and not config["capture"]:
    print("first: broken", file=sys.stderr); print("between"); print("last: cannot go on", file=sys.stderr); sys.exit(4)
# Waits: as a run that does not end in time
if cuda and config.get("capture") and "bf16" in config: time.sleep(float(os.environ.get("SLEEP", "0")))
out = pathlib.Path(config["output_dir"]); out.mkdir(parents=True, exist_ok=True)
endless = config["train_steps"] > 1000
done = 2 if endless else config["train_steps"] - (3 if "--resume" in sys.argv else 0)
(out / "metrics.jsonl").write_text("".join(json.dumps({"loss": 3.0 + (1e-5 if cuda else 0)}) + "\\n" for _ in range(done)))
if not endless and cuda and os.environ.get("LEFT_OPEN", "-") == config.get("pipeline", {}).get("type"):
    print('warning: communicator/nccl: group "stage 1 to 0@0" was left open: NCCL has not closed it within 60 s', file=sys.stderr)
if not endless: sys.exit()
ranks = [subprocess.Popen(["sleep", "100"], env=dict(os.environ, RANK=str(r))) for r in range(2)]
pid, status = os.waitpid(-1, os.WUNTRACED)
rank = [r.pid for r in ranks].index(pid)
for one in ranks: one.kill()
print(f"rank {rank} is lost", file=sys.stderr)
sys.exit(5 if os.WIFSTOPPED(status) else 128 + os.WTERMSIG(status))
"""
SANITIZER = """#!/bin/sh
while [ "${1#--}" != "$1" ]; do shift 2; done
"$@"
"""
# Three tests: B fails, and C fails in a process that B has broken.
TESTS = """#!/usr/bin/env python3
import sys
names = ["Suite.A", "Suite.B", "Suite.C"]
if "--gtest_list_tests" in sys.argv: print("Suite."); print("\\n".join("  " + n[6:] for n in names)); sys.exit()
chosen = [a.split("=")[1] for a in sys.argv if a.startswith("--gtest_filter=")] or names
broken = False
for name in chosen:
    if name == "Suite.B": broken = True
    if broken: print(f"x_test.cpp:7: Failure\\n{name}: an illegal memory access\\n")
passed = 0 if broken else len(chosen)
print(f"[  PASSED  ] {passed} tests.")
sys.exit(1 if broken else 0)
"""
# Answers as it is told in a file: the first whose words are all in the command.
ANSWERS = """#!/usr/bin/env python3
import json, os, pathlib, sys
with open(os.environ["CALLS"], "a") as calls: print(*sys.argv, file=calls)
said = " ".join(sys.argv)
for words, code, out, err in json.loads(pathlib.Path(os.environ["CALLS"] + ".answers").read_text()):
    if all(word in said for word in words):
        if "--output" in sys.argv and code == 0: pathlib.Path(sys.argv[sys.argv.index("--output") + 1]).write_text(out)
        else: print(out)
        print(err, file=sys.stderr)
        sys.exit(code)
sys.exit("no answer to " + said)
"""
# In place of a Python with torch, which holds memory of the GPU.
HOLDER = """#!/bin/sh
echo $$ > "$CALLS.held"
echo held
exec sleep 100  # Waits: until it is killed
"""


class StandIns(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.write("path/nvidia-smi", SMI)
        self.write("tree/bin/drivetrain", PROGRAM)
        self.write("tree/tests/device_gpu_test", TESTS)
        self.calls = self.folder / "calls"

    def write(self, name, text):
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)

    def run_check(self, *words, logs="out", **environment):
        self.calls.write_text("")
        done = subprocess.run(
            [sys.executable, "-B", str(GPU_CHECK), str(self.folder / "tree"), "--logs", str(self.folder / logs), *words],
            capture_output=True, text=True, check=False,
            env={k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"} | {
                "PATH": f"{self.folder / 'path'}:{os.environ['PATH']}", "CALLS": str(self.calls), "DRIVETRAIN_TORCH": "/nowhere"} | environment)
        self.text, self.said = done.stdout + done.stderr, self.calls.read_text()
        return done.returncode

    def nccl(self, version, name="libnccl.so"):
        """A library that says that it is NCCL of this version."""
        self.write("nccl.c", f"int ncclGetVersion(int* version) {{ *version = {version}; return 0; }}")
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", file, self.folder / "nccl.c"], check=True)
        return str(file)

    def rows(self, logs="out", file="results.json"):
        return {key.split(": ", 1)[1]: row for key, row in json.loads((self.folder / logs / file).read_text())["rows"].items()}
