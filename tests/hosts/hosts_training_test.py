#!/usr/bin/env python3
"""Training over two hosts by `drivetrain launch`: the same bits as the same ranks on one host."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

import namespaces
from hosts_fixture import HostsTest

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
    names = ("a", "b")

    def train(self, name, changes, *hosts):
        """The final weights of four ranks on these hosts."""
        run = self.work / name.replace(" ", "_")
        run.mkdir()
        (run / "config.json").write_text(json.dumps({**CONFIG, **changes, "communicator": {"type": "tcp"}}))
        self.hostfile("".join(f"{host} slots={4 // len(hosts)}\n" for host in hosts))
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA", "SSH"))}
        ended = self.hosts["a"].run(
            "env", "-C", run, PROGRAM, "launch", "--hostfile", self.work / "hostfile", "--force_multi", "--launcher_args",
            f"-F {self.folder}/ssh_config", "config.json", env={**environment, "HOME": str(self.folder / "home"),
                                                                 "OMP_NUM_THREADS": "1"})
        self.assertIn("4 ranks", ended.stdout + ended.stderr)
        final = sorted((run / "run/final").glob("*.safetensors"))
        self.assertTrue(final, ended.stdout + ended.stderr)
        return [file.read_bytes() for file in final]

    def test_the_same_bits_as_on_one_host(self):
        for name, changes in LAYOUTS.items():
            with self.subTest(name):
                alone = self.train(f"{name} on one host", changes, "a")
                self.assertTrue(alone == self.train(f"{name} on two hosts", changes, "a", "b"), "other final weights")
        self.expect_nothing_left()


if __name__ == "__main__":
    if reason := namespaces.why_not():
        print(f"skipped: {reason}")
        sys.exit(77)
    unittest.main(verbosity=2)
