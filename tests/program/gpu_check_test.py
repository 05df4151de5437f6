"""tools/gpu_check against a tree of stand-ins.

    gpu_check_test.py GPU_CHECK [TREE]

TREE is a build folder with CUDA's parts: its program then plans every config of the tables.
"""
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest

from gpu_stand_ins import GPU_CHECK, HOLDER, SANITIZER, StandIns

import errors
import machine
import ranks
import runs
import stages

TREE = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else None


class GpuCheck(StandIns):
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

    def test_what_starts_has_not_run(self):
        words, name = ("--stage", "live", "--only", "train"), "float32, not recorded"
        self.assertEqual(self.run_check(*words, "--dry-run"), 0, self.text)
        self.assertEqual(self.rows(file="dry_run.json")[name]["result"], "starts")
        self.run_check(*words)
        self.assertEqual(self.rows()[name]["result"], "passed", self.text)
        self.assertEqual(self.run_check(*words, "--dry-run"), 0, self.text)
        self.assertEqual(self.rows()[name]["result"], "passed")

    def test_a_call_that_adds_nothing_leaves_what_was_known(self):
        words = ("--stage", "live", "--only", "tests")
        self.run_check(*words)
        self.run_check(*words, "--results", str(self.folder / "out/results.json"), logs="second")
        self.assertEqual(self.rows("second"), self.rows())

    def test_what_cannot_be_used_is_refused(self):
        self.write("no.json", "no results")
        self.write("list.json", "[]")
        self.write("half.json", json.dumps({"cpu_losses": {}, "rows": {"live / tests: device_gpu_test": {"figures": ""}}}))
        for words, told in ((("--results", "typo.json"), "typo.json is not what an earlier call left (FileNotFoundError"),
                            (("--results", "no.json"), "no.json is not what"), (("--results", "list.json"), "list.json is not what"),
                            (("--results", "half.json"), "half.json is not what"),
                            (("--stage", "live", "--only", "long"), "no check of live is of long"),
                            (("--limit", "nan"), "--limit nan: wanted seconds"), (("--limit", "-5"), "--limit -5.0: wanted seconds")):
            with self.subTest(words):
                self.assertEqual(self.run_check(*(str(self.folder / w) if w.endswith(".json") else w for w in words)), 2, self.text)
                self.assertIn(told, self.text)
                self.assertNotIn("Traceback", self.text)
        self.write("file", "")
        self.assertEqual(self.run_check(logs="file"), 2)
        self.assertIn("is no folder for files", self.text)
        (self.folder / "tree/bin/drivetrain").unlink()
        self.assertEqual(self.run_check(), 2)
        self.assertIn("is no install tree: bin/drivetrain is not there", self.text)

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

    # A failure of an earlier call is looked into when the machine is gone.
    def test_each_call_adds_its_logs_to_those_of_earlier_ones(self):
        words, archive = ("--stage", "live", "--only", "train"), self.folder / "out/logs.tar.gz"

        def packed():
            with tarfile.open(archive) as tar:
                return {member.name: tar.extractfile(member).read() for member in tar if member.isreg()}

        self.run_check(*words)
        first = packed()
        self.write("out/logs/weights.safetensors", "x")  # as a checkpoint leaves it
        self.write("out/logs/large.log", "x" * (5 << 20))
        self.run_check(*words, "--again", BROKEN="0")
        both = packed()
        failed = "train_bfloat16_not_recorded.log"
        self.assertIn(b"last: cannot go on", first[f"logs/{failed}"])
        self.assertEqual({name: text for name, text in both.items() if name.startswith("logs/")}, first)
        self.assertNotIn(b"cannot go on", both[f"logs_2/{failed}"])
        self.assertFalse([name for name in both if "weights" in name or "large" in name])
        self.run_check(*words)
        self.assertEqual(packed(), both)  # a call that had nothing to do

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
        self.assertEqual({row["result"] for row in self.rows("dry", "dry_run.json").values()}, {"starts"})

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
        self.assertIn("0 warnings of NCCL's own", rows["SIGKILL of a rank, ddp"]["figures"])
        references = {json.dumps(ranks.on_cpu(name), sort_keys=True) for name in ranks.TABLE}
        self.assertEqual(sum("train_cpu" in line for line in self.said.splitlines()), len(references), "each config of the CPU once")
        self.assertLess(len(references), len(ranks.TABLE) / 3)

    # Right losses of a run that ends a minute late.
    def test_a_run_that_leaves_a_group_open_has_failed(self):
        self.assertEqual(self.run_check("--stage", "ranks", "--only", "ranks", BROKEN="0", LEFT_OPEN="gpipe", DRIVETRAIN_NCCL=self.nccl(23007)), 1)
        failed = {name: row["figures"] for name, row in self.rows().items() if row["result"] != "passed"}
        self.assertEqual(set(failed), {name for name in ranks.TABLE if name.startswith("gpipe")})
        self.assertIn('group "stage 1 to 0@0" was left open', failed["gpipe, recorded"])

    def test_ranks_want_an_nccl_that_lets_them_share(self):
        self.assertEqual(self.run_check("--stage", "ranks", DRIVETRAIN_NCCL=self.nccl(22809)), 0, self.text)
        rows = self.rows()
        self.assertEqual(rows.pop("NCCL")["result"], "passed")
        self.assertEqual({row["result"] for row in rows.values()}, {"not run"}, self.text)
        self.assertIn("2 ranks on 1 GPU need NCCL 2.30 or newer", rows["ddp"]["figures"])
        self.assertNotIn("launch", self.said)

    def bad_states(self, **environment):
        self.write("path/holder", HOLDER)
        self.nccl(22809, "site/nvidia/nccl/lib/libnccl.so.2")
        return self.run_check("--stage", "right", "--only", "errors", "--python", str(self.folder / "path/holder"),
                              DRIVETRAIN_TORCH=str(self.folder / "site/torch"), **environment)

    def test_what_is_said_of_a_gpu_in_a_bad_state(self):
        self.assertEqual(self.bad_states(DRIVETRAIN_NCCL=self.nccl(23007)), 0, self.text)
        rows = self.rows()
        self.assertEqual({row["result"] for row in rows.values()}, {"passed"}, self.text)
        self.assertEqual(list(rows)[-1], "a run afterwards")
        self.assertEqual(set(rows), set(errors.TABLE))
        holder = pathlib.Path(f"{self.calls}.held").read_text().strip()
        self.assertIn(f"process {holder} named", rows[errors.FILLED]["figures"])
        self.assertFalse(pathlib.Path("/proc", holder).exists(), "what filled the GPU has to be gone")

    def test_another_code_other_words_and_another_holder_fail(self):
        self.assertEqual(self.bad_states(NAMED="1"), 1, self.text)
        rows = self.rows()
        self.assertRegex(rows[errors.FILLED]["figures"], r"process \d+ holds the GPU, and none is named")
        self.assertEqual({name for name, row in rows.items() if row["result"] == "FAILED"}, {errors.FILLED})
        self.write("tree/bin/drivetrain", "#!/bin/sh\necho a word >&2; exit 0\n")
        self.assertEqual(self.bad_states(), 1)
        self.run_check("--stage", "right", "--only", "errors", "--again", "--python", "/bin/false", logs="third",
                       DRIVETRAIN_TORCH=str(self.folder / "site/torch"))
        third = self.rows("third")
        self.assertEqual({name for name, row in third.items() if row["result"] == "passed"}, {"a run afterwards"})
        self.assertIn("wanted 2: a word", third["no GPU visible"]["figures"])
        self.assertIn("cannot be filled", third[errors.FILLED]["figures"])

    def test_a_process_that_a_run_leaves_is_found_wherever_it_went(self):
        with subprocess.Popen(["sleep", "100"], env={errors.MARK: errors.mark_of("some run")}, start_new_session=True) as left:
            self.assertEqual(errors.left_by("some run", 0), str(left.pid))
            self.assertEqual(errors.left_by("another run", 0), "")
            left.kill()
            left.wait()
            self.assertEqual(errors.left_by("some run", 0), "")

    def test_the_list_is_of_every_check_and_starts_nothing(self):
        self.assertEqual(self.run_check("--list"), 0, self.text)
        self.assertEqual(self.said, "")
        for line in ("ranks / ranks: ring 2, fsdp, dp 2", "right / sanitizer: memcheck a step, bfloat16", "time / peer: llama_7b_gpu"):
            self.assertIn(line, self.text.splitlines())

    # The stage ends after 150 s, and these tell most.
    def test_resumes_lost_ranks_bits_and_recorded_steps_come_behind_the_first_rows(self):
        names = self.listed("ranks")
        self.assertEqual(names[:3], ["NCCL", *list(ranks.TABLE)[:ranks.FIRST]])
        first = [*ranks.RESUMED, *ranks.LOST, "deterministic"]
        self.assertEqual(names[3:3 + len(first)], first)
        self.assertEqual(names[3 + len(first):], list(ranks.TABLE)[ranks.FIRST:])
        sizes = [size for size, *_ in ranks.TABLE.values()]
        self.assertEqual(sizes, sorted(sizes), "rows of two ranks have another beside them")

    def test_a_stage_ends_with_its_own_limit(self):
        some = machine.Machine(self.folder / "tree", self.folder, sys.executable, True, float("inf"))
        with some.within(0), self.assertRaises(machine.OutOfTime):
            some.run("late", ["true"], 10)
        self.assertEqual(some.run("in time", ["true"], 10)[0], 0)


@unittest.skipUnless(TREE, "a build without CUDA's parts has no plugins for these configs")
class Configs(unittest.TestCase):
    def test_the_program_plans_every_config_of_the_tables(self):
        here = machine.Machine(TREE, pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())), sys.executable, True, float("inf"))
        for place, configs in stages.CONFIGS.items():
            with self.subTest(place):
                self.assertRegex(runs.check_configs(here, configs()), r"^\d+ configs$")

    def test_the_row_of_long_sequences_has_to_cut_and_to_offload(self):
        config = next(config for name, _, config in runs.configs(runs.PATHS) if name == "long_context")
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write(json.dumps(config))
            file.flush()
            said = subprocess.run([TREE / "bin/drivetrain", "config", "check", file.name], capture_output=True, text=True, check=True).stdout
        self.assertRegex(said, r'fused_block +{"mlp_chunk":4096}')
        self.assertRegex(said, r'activation_checkpointing +{"type":"offload"}')


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
