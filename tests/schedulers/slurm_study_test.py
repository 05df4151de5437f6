"""A study whose runs are tasks of a real SLURM's array jobs: the losses of one that runs here, a study that is killed and takes
up what its job has done, a cancelled job."""

import json
import signal
import subprocess

from hosts_fixture import PROGRAM, Ended, eventually
from slurm_cluster import SlurmTest, why_not  # noqa: F401  why_not is what run_suite.py asks
from tiny_run import BASE
from waiting import let_pass


class StudyOnACluster(SlurmTest):
    def study(self, name, **keys):
        """A study file and the folder of its study."""
        output = self.work / name
        (self.work / f"{name}.json").write_text(json.dumps({
            "base": BASE, "output_dir": str(output), "repeats": 2, "warmup": 1, "noise_cell": False, "seed_per_repeat": True,
            "outcome": {"metric": "loss", "better": "lower"}, "dispatch": {"slurm": {"options": ["--cpus-per-task=1"]}},
            "factors": {"lr": {"key": "optimizer.params.lr", "levels": [0.001, 0.002]}}, **keys}))
        return output

    def start(self, name, *options):
        environment = {k: v for k, v in self.cluster.environment(OMP_NUM_THREADS="1").items() if not k.startswith("CUDA")}
        study = self.hosts["a"].start("env", "-C", self.work, PROGRAM, "study", f"{name}.json", *options, env=environment,
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(lambda: study.poll() is None and study.kill())
        return study

    def events(self, output, name):
        ledger = output / "ledger.jsonl"
        text = ledger.read_text() if ledger.exists() else ""
        lines = [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]
        return [line for line in lines if line["event"] == name]

    def losses(self, output):
        return {(end["cell"], end["block"]): end["loss"] for end in self.events(output, "end")}

    def test_an_array_gives_what_runs_here_give(self):
        cluster, here = self.study("cluster"), self.study("here", dispatch={"slots": 1})
        ended = Ended(self.start("cluster"))
        self.assertEqual(ended.code, 0, ended.text)
        self.assertRegex(ended.out, r"SLURM job \d+: 4 tasks")
        ends = self.events(cluster, "end")
        self.assertEqual([end["state"] for end in ends], ["ok"] * 4, ended.text)
        self.assertEqual(len({end["job"] for end in ends}), 4)
        self.assertLessEqual({end["host"] for end in ends}, set(self.names))
        self.assertEqual(Ended(self.start("here")).code, 0)
        self.assertEqual(self.losses(cluster), self.losses(here))
        report = json.loads((cluster / "report.json").read_text())
        self.assertEqual(report["ranking"], json.loads((here / "report.json").read_text())["ranking"])
        self.assertIn("Runs were tasks of SLURM", (cluster / "report.md").read_text())

    def test_a_killed_study_takes_up_its_tasks_and_a_cancelled_job_is_told(self):
        output = self.study("endless", repeats=1, set={"train_steps": 10000000})
        first = self.start("endless")
        trains = lambda: len(list(output.glob("runs/*/1/run/metrics.jsonl"))) == 2
        self.assertTrue(eventually(lambda: trains() or first.poll() is not None) and first.poll() is None)
        starts = {start["cell"]: start for start in self.events(output, "start")}
        self.hosts["a"].run("pkill", "-KILL", "-f", "study endless.json")
        first.wait()
        lost = starts["lr=0.001"]
        self.cluster.run("scancel", f"{lost['job']}_{lost['task']}")
        second = self.start("endless", "--resume")
        again = lambda: [start for start in self.events(output, "start") if start["job"] != lost["job"]]
        self.assertTrue(eventually(lambda: again() or second.poll() is not None))
        self.assertEqual([start["cell"] for start in again()], ["lr=0.001"], "the other one still runs")
        cancelled = lambda: self.cluster.run("scancel", "--name=endless") and second.poll() is not None
        self.assertTrue(eventually(cancelled))
        ended = Ended(second)
        self.assertEqual(ended.code, 5, ended.text)
        for words in ("takes up 2 tasks that an earlier start has submitted", "of SLURM ended without a result",
                      "--resume submits those again"):
            self.assertIn(words, ended.out, ended.text)
        self.assertRegex(ended.out, r"repeat 1: task \d+_0 (ended as CANCELLED|is not in SLURM's queue any more)")
        self.assertEqual({end["state"] for end in self.events(output, "end")}, {"skipped"})
        self.assertTrue((output / "report.html").exists())

    def test_a_signal_lets_no_task_behind(self):
        output = self.study("stopped", repeats=1, set={"train_steps": 10000000})
        study = self.start("stopped")
        self.assertTrue(eventually(lambda: list(output.glob("runs/*/1/run/metrics.jsonl")) or study.poll() is not None))
        job = self.events(output, "start")[0]["job"]
        for _ in range(2):
            self.hosts["a"].run("pkill", "-INT", "-f", "study stopped.json")
            let_pass(0.3)  # Waits: two that come at once are one
        ended = Ended(study)
        self.assertEqual(ended.code, 128 + signal.SIGINT, ended.text)
        self.assertIn("--resume goes on", ended.out)
        left = lambda: self.cluster.run("squeue", "-h", "-j", job).stdout
        self.assertTrue(eventually(lambda: not left().strip()), left())

    def test_what_sbatch_refuses_is_told_with_its_words(self):
        output = self.study("refused", dispatch={"slurm": {"options": ["--partition=nowhere"]}})
        ended = Ended(self.start("refused"))
        self.assertEqual(ended.code, 5, ended.text)
        for words in ("sbatch took no array job of 4 tasks", "invalid partition", "--partition=nowhere", "--resume"):
            self.assertIn(words, ended.err, ended.text)
        self.assertEqual(self.events(output, "end"), [])
