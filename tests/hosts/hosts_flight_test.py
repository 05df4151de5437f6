"""Flight records of a run over hosts that share no folder for it: all of them where the launcher runs."""

import json
import os
import pathlib
import subprocess

from hosts_fixture import Ended, HostsTest, eventually

PROGRAM = pathlib.Path(os.environ["HOSTS_TEST_PROGRAM"])
RUN = "/tmp/run"  # each host has a /tmp of its own
CONFIG = {
    "train_steps": 100000000, "train_batch_size": 4, "output_dir": RUN, "stall_report_s": 1, "checkpoint_policy": False,
    "threads": 1, "communicator": {"type": "tcp"},
    "model": {"type": "gpt", "params": {"hidden_size": 16, "num_layers": 1, "num_attention_heads": 2, "vocab_size": 64,
                                        "max_position_embeddings": 16}},
    "dataset": {"type": "synthetic", "params": {"seq_length": 8, "vocab_size": 64}},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
}


class Flight(HostsTest):
    def start_run(self, on="a"):
        """Ranks 0 and 1 on host a, 2 and 3 on host b, once they train; launched from host `on`."""
        self.hostfile("a slots=2\nb slots=2\n")
        (self.work / "config.json").write_text(json.dumps(CONFIG))
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA", "SSH"))}
        launch = self.hosts[on].start(
            "env", "-C", self.work, PROGRAM, "launch", "--hostfile", self.work / "hostfile", "--launcher_args",
            f"-F {self.folder}/ssh_config", "config.json", stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**environment, "HOME": str(self.folder / "home"), "OMP_NUM_THREADS": "1"})
        self.addCleanup(lambda: launch.poll() is None and launch.kill())
        steps = lambda: subprocess.run(self.hosts["a"].words("wc", "-l", f"{RUN}/metrics.jsonl"), capture_output=True,
                                       text=True).stdout.split()
        self.assertTrue(eventually(lambda: int((steps() or ["0"])[0]) > 1), "no step")
        return launch

    def signal_rank(self, host, signal):
        self.hosts[host].run("pkill", f"-{signal}", "-n", "-f", "drivetrain train")

    def flight(self, on, *options):
        done = subprocess.run(self.hosts[on].words(PROGRAM, "flight", RUN, *options), capture_output=True, text=True)
        return done.stdout + done.stderr

    def expect_records(self, text, ranks):
        for rank, host in enumerate("aabb"):
            word = f"rank {rank} of 4, host {host}"
            (self.assertIn if rank in ranks else self.assertNotIn)(word, text)

    def clean(self):
        for host in self.hosts.values():
            host.run("rm", "-rf", RUN)
        self.expect_nothing_left()

    def test_a_killed_rank(self):
        launch = self.start_run()
        self.signal_rank("b", "KILL")
        ended = Ended(launch)
        self.expect(ended, 137, "the flight records of ranks 2 and 3 were brought from their hosts: `drivetrain flight "
                    f"{RUN}` reads them")
        text = self.flight("a")
        self.expect_records(text, {0, 1, 2, 3})
        self.assertIn("At the end: ", text)
        self.assertIn("own work", text)
        self.clean()

    def test_a_launcher_on_a_host_without_ranks(self):
        launch = self.start_run(on="c")
        self.signal_rank("a", "KILL")
        self.expect(Ended(launch), 137, "the flight records of ranks 0, 1, 2 and 3 were brought")
        self.expect_records(self.flight("c"), {0, 1, 2, 3})
        self.clean()

    def test_a_run_that_does_not_go_on(self):
        launch = self.start_run()
        self.signal_rank("b", "STOP")
        self.assertTrue(eventually(lambda: "rank 3 of 4" in self.flight("a")), self.flight("a"))
        self.expect_records(self.flight("a"), {0, 1, 2, 3})
        self.signal_rank("b", "CONT")
        self.hosts["a"].run("pkill", "-TERM", "-f", "drivetrain launch")  # nsenter passes no signal on
        self.expect(Ended(launch), 143)
        self.assertIn("holds no flight records", self.flight("a"))
        self.clean()

    def test_a_lost_host(self):
        launch = self.start_run()
        self.network.cut("b")
        ended = Ended(launch)
        self.network.mend("b")
        self.expect(ended, 5, "host b is lost")
        text = self.flight("a")
        self.expect_records(text, {0, 1})
        self.assertIn("There is no record of ranks 2 and 3 of 4: host b was lost: ", text)
        self.clean()
