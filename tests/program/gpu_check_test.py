"""tools/gpu_check against a tree of stand-ins: nvidia-smi, the program and test programs are scripts here.

    gpu_check_test.py GPU_CHECK [TREE]

TREE is a build folder with CUDA's parts: its program then plans every config of the tables.
"""
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest

GPU_CHECK = pathlib.Path(sys.argv.pop(1)).resolve()
TREE = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else None

SMI = "#!/bin/sh\necho 'NVIDIA Stand-in H100, 81559 MiB, 580.1, 9.0'\n"
# What becomes of a run is in its config and in the environment; losses of the CPU are those of the GPU but for 1e-5. A run that
# would not end has a process for each rank: one that is killed ends it, one that is stopped is given up.
PROGRAM = """#!/usr/bin/env python3
import json, os, pathlib, signal, subprocess, sys, time
with open(os.environ["CALLS"], "a") as calls: print(*sys.argv[1:], os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE", "-"), file=calls)
files = [a for a in sys.argv if a.endswith(".json")]
if sys.argv[1] == "config": print(json.dumps([{"file": f, "code": 0, "problems": []} for f in files])); sys.exit()
config = json.loads(pathlib.Path(files[0]).read_text())
cuda = config.get("device") == "cuda"
if os.environ.get("BROKEN", "1") == "1" and cuda and "bf16" in config and not config["capture"]:
    print("first: broken", file=sys.stderr); print("between"); print("last: cannot go on", file=sys.stderr); sys.exit(4)
# Waits: as a run that does not end in time
if cuda and config.get("capture") and "bf16" in config: time.sleep(float(os.environ.get("SLEEP", "0")))
out = pathlib.Path(config["output_dir"]); out.mkdir(parents=True, exist_ok=True)
endless = config["train_steps"] > 1000
done = 2 if endless else config["train_steps"] - (3 if "--resume" in sys.argv else 0)
(out / "metrics.jsonl").write_text("".join(json.dumps({"loss": 3.0 + (1e-5 if cuda else 0)}) + "\\n" for _ in range(done)))
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


class GpuCheck(unittest.TestCase):
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
            env=dict(os.environ, PATH=f"{self.folder / 'path'}:{os.environ['PATH']}", CALLS=str(self.calls), DRIVETRAIN_TORCH="/nowhere",
                     **environment))
        self.text, self.said = done.stdout + done.stderr, self.calls.read_text()
        return done.returncode

    def rows(self, logs="out"):
        return {key.split(": ", 1)[1]: row for key, row in json.loads((self.folder / logs / "results.json").read_text())["rows"].items()}

    def listed(self, stage):
        self.assertEqual(self.run_check("--list", "--stage", stage, logs="list"), 0, self.text)
        return [line.split(": ", 1)[1] for line in self.text.splitlines()]

    def test_a_program_that_fails_runs_each_test_in_a_process_of_its_own(self):
        self.assertEqual(self.run_check("--stage", "live", "--only", "tests"), 1, self.text)
        row = self.rows()["device_gpu_test"]
        self.assertEqual(row["result"], "FAILED")
        self.assertIn("1 of 3 tests, each in a process of its own: Suite.B: exit 1", row["figures"])
        self.assertIn("an illegal memory access", row["figures"])
        self.assertNotIn("Suite.C", row["figures"])

    def test_losses_of_the_cpu_are_computed_once_and_an_error_has_its_first_and_last_words(self):
        self.assertEqual(self.run_check("--stage", "live", "--only", "train"), 1, self.text)
        rows = self.rows()
        self.assertEqual(rows["float32, recorded"]["result"], "passed")
        self.assertIn("losses within 3.3e-06 of the CPU's", rows["float32, recorded"]["figures"])
        self.assertEqual(rows["bfloat16, not recorded"]["result"], "FAILED")
        self.assertIn("exit 4: first: broken ... between", rows["bfloat16, not recorded"]["figures"])
        self.assertEqual(rows["float32, 2 ranks"], {"result": "not run", "figures": "needs 2 GPUs", "seconds": 0})
        self.assertEqual(sum("train_cpu" in line for line in self.said.splitlines()), 1, self.said)

    def test_what_was_done_is_not_done_again_and_failures_are_where_it_is_asked_for(self):
        words = ("--stage", "live", "--only", "train")
        self.run_check(*words)
        results = self.folder / "out/results.json"
        self.assertEqual(self.run_check(*words, "--results", str(results), logs="second"), 1)
        self.assertEqual(self.said, "")
        self.assertEqual(self.run_check(*words, "--results", str(results), "--again", logs="third"), 1)
        self.assertEqual(len(self.said.splitlines()), 1, self.said)
        self.assertIn("bfloat16_not_recorded", self.said)
        self.assertEqual(self.rows("third"), self.rows() | {"bfloat16, not recorded": self.rows("third")["bfloat16, not recorded"]})

    def test_a_call_ends_with_its_limit_and_the_next_goes_on(self):
        self.write("tree/tests/device_gpu_test", "#!/bin/sh\necho '[  PASSED  ] 1 test.'\n")
        words = ("--stage", "live", "--only", "train", "--only", "tests")
        # One is left that would not end before its limit; a slow machine may leave others.
        self.assertIn(self.run_check(*words, "--limit", "3", SLEEP="100000"), (1, 3), self.text)
        self.assertRegex(self.text, r"\b\d+ left for the next call: live / train: ")
        self.assertNotIn("bfloat16, recorded", self.rows())
        self.run_check(*words, SLEEP="0")
        self.assertEqual(self.rows()["bfloat16, recorded"]["result"], "passed")

    def test_few_files_come_back_and_the_table_fits(self):
        self.write("tree/bin/drivetrain", "#!/bin/sh\nfor i in 1 2 3 4; do printf 'x%.0s' $(seq 300) >&2; echo >&2; done; exit 1\n")
        self.assertEqual(self.run_check("--stage", "live", "--stage", "right", "--only", "train", "--only", "paths"), 1)
        self.assertEqual(sorted(p.name for p in (self.folder / "out").iterdir()), ["logs.tar.gz", "results.json", "summary.md"])
        summary = (self.folder / "out/summary.md").read_text()
        self.assertLessEqual(len(summary), 12200)
        self.assertIn("| live / train: float32, recorded | FAILED |", summary)
        with tarfile.open(self.folder / "out/logs.tar.gz") as archive:
            self.assertTrue(any(name.endswith(".log") for name in archive.getnames()))


    def nccl(self, version):
        """A library that says that it is NCCL of this version."""
        code, file = self.folder / "nccl.c", self.folder / f"libnccl-{version}.so"
        code.write_text(f"int ncclGetVersion(int* version) {{ *version = {version}; return 0; }}")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", file, code], check=True)
        return str(file)

    # A check that fails of itself fails every time that somebody has a GPU, and nobody sees it before.
    def test_every_row_of_the_tables_builds_its_config_and_runs(self):
        self.write("path/compute-sanitizer", SANITIZER)
        words = ("--stage", "right", "--stage", "live", "--only", "paths", "--only", "sanitizer", "--only", "train")
        self.assertEqual(self.run_check(*words, BROKEN="0"), 0, self.text)
        rows = self.rows()
        self.assertEqual(rows["memcheck a step, bfloat16"]["figures"], "2 steps without an error")
        not_run = {name for name, row in rows.items() if row["result"] != "passed"}
        self.assertEqual(not_run, {"float32, 2 ranks", "offload_param"}, "those of two ranks want two GPUs")
        self.assertEqual(self.run_check(*words, "--dry-run", logs="dry"), 0, self.text)
        self.assertEqual({row["result"] for row in self.rows("dry").values()}, {"starts"})

    def test_ranks_share_a_gpu_lose_ranks_and_resume(self):
        names = self.listed("ranks")
        self.assertEqual(self.run_check("--stage", "ranks", BROKEN="0", DRIVETRAIN_NCCL=self.nccl(23007)), 0, self.text)
        rows = self.rows()
        self.assertEqual({row["result"] for row in rows.values()}, {"passed"}, self.text)
        self.assertEqual(set(rows), set(names))
        self.assertIn("NCCL 2.30.7 of ", rows["NCCL"]["figures"])
        self.assertIn("exit 137 after", rows["SIGKILL of a rank, 1F1B"]["figures"])
        self.assertIn("exit 5 after", rows["SIGSTOP of rank 0, ddp"]["figures"])
        self.assertIn("zero 3 on 2, then fsdp on 4: 3 steps", rows["resumed over 4 ranks"]["figures"])
        self.assertIn("fsdp on 4, then zero 3 on 2: 3 steps", rows["resumed over 2 ranks"]["figures"])
        shared = [line for line in self.said.splitlines() if line.startswith("launch")]
        self.assertTrue(shared and all(line.endswith(" 1") for line in shared), self.said)
        sys.path.insert(0, str(GPU_CHECK.parent / "gpu"))
        import ranks
        references = {json.dumps(ranks.on_cpu(name), sort_keys=True) for name in ranks.TABLE}
        self.assertEqual(sum("train_cpu" in line for line in self.said.splitlines()), len(references), "each config of the CPU once")
        self.assertLess(len(references), len(ranks.TABLE) / 3)

    def test_ranks_want_an_nccl_that_lets_them_share(self):
        self.assertEqual(self.run_check("--stage", "ranks", DRIVETRAIN_NCCL=self.nccl(22809)), 0, self.text)
        rows = self.rows()
        self.assertEqual(rows.pop("NCCL")["result"], "passed")
        self.assertEqual({row["result"] for row in rows.values()}, {"not run"}, self.text)
        self.assertIn("2 ranks on 1 GPU need NCCL 2.30 or newer", rows["ddp"]["figures"])
        self.assertNotIn("launch", self.said)

    def test_the_list_is_of_every_check_and_starts_nothing(self):
        self.assertEqual(self.run_check("--list"), 0, self.text)
        self.assertEqual(self.said, "")
        for line in ("ranks / ranks: ring 2, fsdp, dp 2", "right / sanitizer: memcheck a step, bfloat16", "time / peer: llama_7b_gpu"):
            self.assertIn(line, self.text.splitlines())

    # The stage ends after 150 s, and these tell most.
    def test_bits_resumes_and_lost_ranks_come_behind_the_first_rows(self):
        names = self.listed("ranks")
        first = ["deterministic", "resumed over 4 ranks", "resumed over 2 ranks", "SIGKILL of a rank, ddp", "SIGKILL of a rank, 1F1B",
                 "SIGSTOP of rank 0, ddp"]
        begin = names.index("deterministic")
        self.assertEqual(names[begin:begin + len(first)], first)
        self.assertEqual(names[:2], ["NCCL", "ddp"])
        self.assertLess(begin, 8)

    def test_a_stage_ends_with_its_own_limit(self):
        sys.path.insert(0, str(GPU_CHECK.parent / "gpu"))
        import machine
        some = machine.Machine(self.folder / "tree", self.folder, sys.executable, True, float("inf"))
        with some.within(0), self.assertRaises(machine.OutOfTime):
            some.run("late", ["true"], 10)
        self.assertEqual(some.run("in time", ["true"], 10)[0], 0)


@unittest.skipUnless(TREE, "a build without CUDA's parts has no plugins for these configs")
class Configs(unittest.TestCase):
    def test_the_program_plans_every_config_of_the_tables(self):
        sys.path.insert(0, str(GPU_CHECK.parent / "gpu"))
        import machine
        import runs
        import stages
        here = machine.Machine(TREE, pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())), sys.executable, True, float("inf"))
        for place, configs in stages.CONFIGS.items():
            with self.subTest(place):
                self.assertRegex(runs.check_configs(here, configs()), r"^\d+ configs$")

    def test_the_row_of_long_sequences_has_to_cut_and_to_offload(self):
        sys.path.insert(0, str(GPU_CHECK.parent / "gpu"))
        import runs
        config = next(config for name, _, config in runs.configs(runs.PATHS) if name == "long_context")
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write(json.dumps(config))
            file.flush()
            said = subprocess.run([TREE / "bin/drivetrain", "config", "check", file.name], capture_output=True, text=True, check=True).stdout
        self.assertRegex(said, r'fused_block +{"mlp_chunk":4096}')
        self.assertRegex(said, r'activation_checkpointing +{"type":"offload"}')


class Figures(unittest.TestCase):
    def test_kernels_are_added_up_by_time(self):
        sys.path.insert(0, str(GPU_CHECK.parent / "gpu"))
        import figures
        head = '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n'
        rows = [("1", "void ns::gemm<int>(float)", "gpu__time_duration.sum", "us", "1,500.0"),
                ("1", "void ns::gemm<int>(float)", "dram__bytes.sum", "Mbyte", "3"),
                ("2", "void ns::gemm<int>(float)", "gpu__time_duration.sum", "us", "1500"),
                ("3", "adam", "gpu__time_duration.sum", "ms", "1"), ("3", "adam", "dram__bytes.sum", "Gbyte", "2")]
        text = "==PROF== connected\n" + head + "\n".join(",".join(f'"{cell}"' for cell in row) for row in rows)
        self.assertEqual(figures.by_time(text),
                         "4.00 ms in 3 kernels (two steps): gemm 75.0 % in 2, 1 GB/s; adam 25.0 % in 1, 2000 GB/s")


    def test_steps_and_clocks_are_told_one_by_one(self):
        sys.path.insert(0, str(GPU_CHECK.parent / "gpu"))
        import figures
        said = {"steps": [{"step_s": 0.114}, {"step_s": 0.1245}]}
        busy = "0, 345, 2619, 90.10, 30\nN/A\n98, 1980, 2619, 640.50, 60\n99, 1755, 2619, 698.00, 63\n"
        self.assertEqual(figures.one_by_one(said, busy),
                         "; steps 114.0, 124.5 ms; multiprocessors, MHz: 1755 to 1980, median 1868; memory, MHz: 2619 to 2619, median 2619; "
                         "power, W: 640 to 698, median 669; temperature, C: 60 to 63, median 62")
        self.assertIn("no clocks of a busy GPU", figures.one_by_one(said, ""))
        self.assertTrue(figures.WATCHED <= set(figures.BENCHES))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
