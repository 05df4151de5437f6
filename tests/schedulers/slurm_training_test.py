"""A job that `launch --submit` has written, submitted, preempted, requeued and gone on with: the final weights have the
bits of a run that nobody disturbed."""

import json
import re
import shutil
import subprocess

from hosts_fixture import MISDEEDS, PROGRAM, eventually
from slurm_cluster import SlurmTest, why_not  # noqa: F401  why_not is what run_suite.py asks
from waiting import let_pass, scaled

STEPS = 60
FIRST_GATE = 10  # from here on no step begins before the test opens its gate
CONFIG = {
    "train_steps": STEPS, "threads": 1, "train_batch_size": 2, "gradient_accumulation_steps": 1, "output_dir": "run",
    "model": {"type": "gpt", "params": {"num_layers": 2, "hidden_size": 64, "num_attention_heads": 2, "vocab_size": 256,
                                        "max_position_embeddings": 64}},
    "dataset": {"type": "synthetic", "params": {"seq_length": 32, "vocab_size": 256}},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "communicator": {"type": "tcp"},
}


class Requeued(SlurmTest):
    def setUp(self):
        super().setUp()
        self.gates = self.work / "gates"
        self.gates.mkdir()
        strategy = {"type": "misdeed", "params": {"gates": str(self.gates)}}
        (self.work / "config.json").write_text(json.dumps({**CONFIG, "strategy": strategy}))

    def drivetrain(self, *words, on=None):
        given = ("env", "-C", self.work, PROGRAM, "launch", "--plugin-path", MISDEEDS, *words, "config.json")
        environment = {k: v for k, v in self.cluster.environment(OMP_NUM_THREADS="1").items() if not k.startswith("CUDA")}
        done = subprocess.run(on.words(*given) if on else [str(w) for w in given], env=environment, capture_output=True,
                              text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def steps(self, run):
        file = self.work / run / "metrics.jsonl"
        return len(file.read_text().splitlines()) if file.exists() else 0

    def state(self, job):
        said = self.cluster.run("scontrol", "show", "job", job).stdout
        return dict(word.split("=", 1) for word in said.split() if "=" in word)

    def log(self):
        return "".join(file.read_text() for file in self.work.glob("*.log"))

    def preempted(self, job, closed):
        """Opens a gate if the job stands there and may not have heard of it yet: it ends with a step."""
        if self.state(job)["Restarts"] == "1":
            return True
        if self.state(job).get("PreemptTime", "None") != "None" and self.steps("run") + 1 >= closed[0]:
            (self.gates / str(closed.pop(0))).unlink()
            let_pass(0.2)  # Waits: it may hear of it now
        return False

    def test_a_preempted_job_ends_with_the_bits_of_an_undisturbed_one(self):
        closed = list(range(FIRST_GATE, STEPS))
        for step in closed:
            (self.gates / str(step)).touch()
        said = self.drivetrain("--submit", "job.sh", "--num_nodes", "2", on=self.hosts["a"])
        self.assertIn("Submitted batch job", said)
        job = said.split()[-1]
        self.assertTrue(eventually(lambda: self.steps("run") == FIRST_GATE - 1), self.log())
        (self.work / "urgent.sh").write_text("#!/bin/bash\n")
        self.cluster.run("sbatch", "--exclusive", "-N2", "-p", "urgent", "-o", "/dev/null", self.work / "urgent.sh")
        self.assertTrue(eventually(lambda: self.preempted(job, closed)), self.log())
        shutil.rmtree(self.gates)
        stopped_after = int(re.search(r"stopped after step (\d+) of", self.log())[1])
        self.assertLess(stopped_after, STEPS)
        self.assertTrue(eventually(lambda: self.state(job)["JobState"] == "COMPLETED", scaled(250)), self.log())
        for words in ("by signal 15", "saved a checkpoint and is put into the queue again",
                      f"goes on from checkpoint step-{stopped_after:08d}"):
            self.assertIn(words, self.log())
        self.assertEqual(self.steps("run"), STEPS)
        self.drivetrain("-n", "2", "--set", "output_dir=alone")
        alone, run = ((self.work / name / "final/model.safetensors").read_bytes() for name in ("alone", "run"))
        self.assertTrue(alone == run, "other final weights")
