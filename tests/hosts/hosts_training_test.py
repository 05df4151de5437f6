"""Training over two hosts by `drivetrain launch`: the same bits as the same ranks on one host."""

import json
import os
import pathlib
import shutil
import subprocess
import unittest

from hosts_fixture import MISDEEDS, Ended, HostsTest, eventually

PROGRAM = pathlib.Path(os.environ["HOSTS_TEST_PROGRAM"])
CONFIG = {
    "train_steps": 4, "train_batch_size": 8, "gradient_accumulation_steps": 2, "output_dir": "run",
    "model": {"type": "gpt", "params": {"hidden_size": 32, "num_layers": 4, "num_attention_heads": 4, "vocab_size": 64,
                                        "max_position_embeddings": 16}},
    "dataset": {"type": "synthetic", "params": {"seq_length": 16, "vocab_size": 64}},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "gradient_clipping": 1.0,
}
LAYOUTS = {
    "zero-3": {"zero_optimization": {"stage": 3}},
    "tensor and pipeline": {"tensor_parallel": {"size": 2},
                            "pipeline": {"type": "one_f_one_b", "params": {"stages": 2}}},
}


class Training(HostsTest):
    names = ("a", "b", "c")

    def start_training(self, name, changes, *hosts, options=()):
        """Four ranks on these hosts. Returns the process, and where it trains."""
        run = self.work / name.replace(" ", "_")
        run.mkdir()
        (run / "config.json").write_text(json.dumps({**CONFIG, **changes, "communicator": {"type": "tcp"}}))
        self.hostfile("".join(f"{host} slots={4 // len(hosts)}\n" for host in hosts))
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA", "SSH"))}
        launch = self.hosts["a"].start(
            "env", "-C", run, PROGRAM, "launch", "--hostfile", self.work / "hostfile", "--force_multi", "--launcher_args",
            f"-F {self.folder}/ssh_config", "--plugin-path", MISDEEDS, *options, "config.json", stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**environment, "HOME": str(self.folder / "home"), "OMP_NUM_THREADS": "1"})
        return launch, run

    def weights(self, launch, run):
        ended = Ended(launch)
        self.expect(ended, 0)
        self.assertIn("4 ranks", ended.out + ended.err)
        final = sorted((run / "run/final").glob("*.safetensors"))
        self.assertTrue(final, ended.text)
        return [file.read_bytes() for file in final]

    def train(self, name, changes, *hosts):
        """The final weights of four ranks on these hosts."""
        return self.weights(*self.start_training(name, changes, *hosts))

    def test_the_all_reduce_benchmark_over_two_hosts(self):
        self.hostfile("a slots=1\nb slots=1\n")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA", "SSH"))}
        launch = self.hosts["a"].start(
            PROGRAM, "launch", "--hostfile", self.work / "hostfile", "--launcher_args", f"-F {self.folder}/ssh_config",
            "--bench", "collectives", "--communicator", "tcp", "--op", "all_reduce", "--from", "32K", "--to", "128K",
            "--rounds", "2", "--threads", "1", "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**environment, "HOME": str(self.folder / "home"), "OMP_NUM_THREADS": "1"})
        ended = Ended(launch)
        self.expect(ended, 0)
        report = json.loads(next(line for line in ended.out.splitlines() if line.startswith("{")))
        self.assertEqual(report["ranks"], 2)
        self.assertEqual({result["bytes"] for result in report["results"]}, {32 << 10, 128 << 10})
        for result in report["results"]:
            self.assertEqual((result["communicator"], result["bus_factor"]), ("tcp", 1.0))

    def test_the_same_bits_as_on_one_host(self):
        for name, changes in LAYOUTS.items():
            with self.subTest(name):
                alone = self.train(f"{name} on one host", changes, "a")
                self.assertTrue(alone == self.train(f"{name} on two hosts", changes, "a", "b"), "other final weights")
        self.expect_nothing_left()

    def test_data_that_one_host_lacks(self):
        """One error, which says on which host what is not there and what to do; no rank trains."""
        model = {"type": "gpt", "params": {**CONFIG["model"]["params"], "vocab_size": 256}}
        for host, files in (("b", "data/a.txt"), ("a", "data/*.txt")):
            with self.subTest(host):
                changes = {"model": model, "dataset": {"type": "text", "params": {"seq_length": 16, "files": [f"../{files}"]}}}
                data = self.work / "data"
                data.mkdir(exist_ok=True)
                (data / "a.txt").write_text("one text of several. " * 400)
                self.on_host(host, "mount", "-t", "tmpfs", "tmpfs", data)
                launch, run = self.start_training(f"lacks {host}", changes, "a", "b")
                ended = Ended(launch)
                self.on_host(host, "umount", data)
                self.expect(ended, 2, f"on host {host} failed first: exit 2", f"Only host {host} said so",
                            "have to be at the same path on every host")
                self.assertEqual((ended.out + ended.err).count(f"{self.work}/{files}"), 1, ended.text)
                self.assertEqual([file.name for file in run.rglob("*")], ["config.json"])
                self.expect_nothing_left()

    def test_a_study_side_by_side_on_two_hosts(self):
        """Each run on a slot's host, with the losses that the same seed has on the other one."""
        (self.work / "bin").mkdir()
        ssh = self.work / "bin/ssh"  # a study's launches take ssh as the user has configured it
        ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {self.folder}/ssh_config "$@"\n')
        ssh.chmod(0o755)
        for host in "bc":
            (self.work / f"hosts-{host}").write_text(f"{host} slots=2\n")
        study = {"base": {**CONFIG, "gradient_accumulation_steps": 1, "communicator": {"type": "tcp"},
                          "checkpoint_policy": False, "save_final": False}, "repeats": 2,
                 "noise_cell": False, "gate": False, "outcome": {"metric": "loss", "better": "lower"}, "seed_per_repeat": True,
                 "factors": {"zero_optimization.stage": [0, 3]}, "output_dir": "study",
                 "dispatch": {"slots": [{"hosts": "hosts-b"}, {"hosts": "hosts-c"}]}}
        del study["base"]["output_dir"]
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA", "SSH"))}
        environment |= {"HOME": str(self.folder / "home"), "OMP_NUM_THREADS": "1", "PATH": f"{ssh.parent}:{environment['PATH']}"}

        def run(changes, code=0):
            (self.work / "study.json").write_text(json.dumps({**study, **changes}))
            ended = Ended(self.hosts["a"].start("env", "-C", self.work, PROGRAM, "study", "study.json", stdout=subprocess.PIPE,
                                                stderr=subprocess.PIPE, env=environment))
            self.expect(ended, code)
            return ended

        self.assertIn("slot 1: hosts b; slot 2: hosts c", run({}).out)
        events = [json.loads(line) for line in (self.work / "study/ledger.jsonl").read_text().splitlines()]
        ends = [event for event in events if event["event"] == "end"]
        self.assertEqual([end["state"] for end in ends], ["ok"] * 4, ends)
        self.assertEqual({(end["slot"], end["hosts"]) for end in ends}, {(1, "b"), (2, "c")})
        self.assertEqual({event["world_size"] for event in events if event["event"] == "cell"}, {2})
        self.assertEqual(len({(end["block"], tuple(end["loss"])) for end in ends}), 2, "ZeRO changes no loss")
        self.assertIn("speeds are those of several hosts", (self.work / "study/report.md").read_text())
        self.assertIn('"world_size" is 4, and hosts-b has 2 slots', run({"world_size": 4, "output_dir": "other"}, code=2).err)
        self.expect_nothing_left()

    def lose(self, name, lose, *options):
        """The final weights of a run that loses something after its second checkpoint."""
        gate = self.work / "gates/13"  # where the run stands until then
        gate.parent.mkdir()
        changes = {"train_steps": 18, **LAYOUTS["zero-3"],
                   "checkpoint_policy": [{"type": "every", "params": {"steps": 5, "keep": 2}}],
                   "strategy": {"type": "misdeed", "params": {"gates": str(gate.parent)}}}
        undisturbed = self.train(f"{name} without a loss", changes, "a", "b")
        gate.touch()
        launch, run = self.start_training(name, changes, "a", "b", options=("--max-restarts", "2", *options))
        saved = run / "run/checkpoints/step-00000010/manifest.json"
        self.assertTrue(eventually(saved.exists), "no checkpoint")
        lose()
        gate.unlink()
        self.assertTrue(undisturbed == self.weights(launch, run), "other final weights")
        self.expect_nothing_left()

    def test_the_same_bits_after_a_lost_rank(self):
        self.lose("a lost rank", lambda: self.hosts["b"].run("pkill", "-KILL", "-n", "-f", "drivetrain train"))


@unittest.skipUnless(os.environ.get("DRIVETRAIN_ALL_LOST_HOSTS"), "DRIVETRAIN_ALL_LOST_HOSTS=1 is not set")
class TrainingThatLosesAHost(Training):
    test_the_same_bits_as_on_one_host = test_the_same_bits_after_a_lost_rank = None

    def test_the_same_bits_on_another_host(self):
        self.lose("a lost host", lambda: self.end_host("b"), "--spare", "c")
