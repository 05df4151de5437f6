"""`drivetrain launch` by the mpirun of MPICH and of Open MPI, and by a host file of PBS, over two hosts: what ranks are
told, and how runs end."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import unittest

from hosts_fixture import Ended, HostsTest, eventually

PROGRAM = pathlib.Path(os.environ["HOSTS_TEST_PROGRAM"])
CONFIG = {
    "train_steps": 4, "train_batch_size": 8, "gradient_accumulation_steps": 2, "output_dir": "run",
    "model": {"type": "gpt", "params": {"hidden_size": 64, "num_layers": 2, "num_attention_heads": 2, "vocab_size": 64,
                                        "max_position_embeddings": 16}},
    "dataset": {"type": "synthetic", "params": {"seq_length": 16, "vocab_size": 64}},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "communicator": {"type": "mpi"},
    "zero_optimization": {"stage": 3},
}

# The hosts have no names that resolve, so that MPICH is told by which interface its parts meet.
LAUNCHERS = {
    "mpich": ("mpiexec.hydra", "PMI_RANK", "-iface eth0 -launcher ssh -launcher-exec {ssh}"),
    "openmpi": ("mpirun.openmpi", "OMPI_COMM_WORLD_RANK", "--allow-run-as-root --mca plm_rsh_agent {ssh}"),
}


def why_not():
    return None if THERE else "there is no mpiexec.hydra (package mpich)"


THERE = {name: row for name, row in LAUNCHERS.items() if shutil.which(row[0])}
for missing in LAUNCHERS.keys() - THERE.keys():
    print(f"left out: {LAUNCHERS[missing][0]} is not installed, so nothing is tested with {missing}", flush=True)


class Mpirun(HostsTest):
    names = ("a", "b")

    def setUp(self):
        super().setUp()
        ssh = self.work / "ssh.sh"
        ssh.write_text(f'#!/bin/sh\nexec ssh -F {self.folder}/ssh_config "$@"\n')
        ssh.chmod(0o755)

    def launch_by(self, launcher, script, *options):
        args = THERE[launcher][2].format(ssh=self.work / "ssh.sh")
        for file in self.work.glob("up*"):
            file.unlink()
        return self.start(script, "--launcher", launcher, "--launcher_args", args, *options, ssh_config=None)

    def for_each(self):
        for launcher in THERE:
            with self.subTest(launcher):
                yield launcher
            self.expect_nothing_left()

    def expect_nothing_left(self):
        """mpirun itself ends the agents, perhaps a moment after launch has ended."""
        for host in self.hosts.values():
            left = host.processes_of_ours
            self.assertTrue(eventually(lambda: not left()), f"{host.name}: {left()}")

    def test_ranks_are_those_of_the_mpi(self):
        self.hostfile("a slots=1\nb slots=3\n")
        for launcher in self.for_each():
            script = ('echo "$(hostname) $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE, mpi $' + THERE[launcher][1] +
                      ' gpus $CUDA_VISIBLE_DEVICES"; all_up')
            ended = Ended(self.launch_by(launcher, script, "--include", "a@b:0,2"))
            self.expect(ended, 0)
            lines = sorted(re.sub(r"^\[.*?\] ", "", line) for line in ended.out.splitlines())
            self.assertEqual(lines, ["a 0 of 3, 0 of 1, mpi 0 gpus ", "b 1 of 3, 0 of 2, mpi 1 gpus 0,2",
                                     "b 2 of 3, 1 of 2, mpi 2 gpus 0,2"], ended.text)

    def test_failures_and_signals(self):
        self.hostfile("a slots=1\nb slots=1\n")
        for launcher in self.for_each():
            ended = Ended(self.launch_by(launcher, "[ $RANK = 1 ] && { echo why >&2; kill -SEGV $$; }; hold"))
            self.expect(ended, 139, "rank 1 on host b failed first: killed by signal 11", "why")
            self.assertNotIn("BAD TERMINATION", ended.err)
            launch = self.launch_by(launcher, 'trap "exit 75" TERM; touch "$W/up$RANK"; idle')
            self.wait_for("up0", "up1")
            self.hosts["a"].run("pkill", "-TERM", "-f", "bin/drivetrain launch --hostfile")
            self.expect(Ended(launch), 75)

    def test_a_starter_that_fails(self):
        """MPICH's goes on waiting for a host that ssh does not reach, until launch has waited for 60 s."""
        self.hostfile("a slots=1\nnowhere slots=1\n")
        for launcher in self.for_each():
            if launcher == "mpich":
                continue
            ended = Ended(self.launch_by(launcher, "true"))
            self.expect(ended, 5, "did not come", "no rank was started")

    def test_each_process_of_mpirun_becomes_a_rank(self):
        for launcher in self.for_each():
            extra = ("--allow-run-as-root", "--oversubscribe") if launcher == "openmpi" else ()
            words = [THERE[launcher][0], *extra, "-n", "2", *self.words(ssh_config=None, hostfile=False)]
            done = subprocess.run([str(w) for w in words], env=self.environment(f"echo ${THERE[launcher][1]}"),
                                  capture_output=True, text=True)
            self.assertEqual((done.returncode, sorted(done.stdout.split())), (0, ["0", "1"]), done.stderr)
            self.assertIn("mpirun has started 2 processes", done.stderr)


@unittest.skipUnless("mpich" in THERE, "there is no mpiexec.hydra (package mpich)")
class MpiOverHosts(Mpirun):
    """communicator/mpi with two ranks on each of two hosts: shared memory on a host, the network between hosts."""
    for inherited in [name for name in vars(Mpirun) if name.startswith("test_")]:
        vars()[inherited] = None

    def train(self, name, *settings, hosts="a slots=2\nb slots=2\n", options=(), **config):
        run = self.work / name
        run.mkdir()
        (run / "config.json").write_text(json.dumps({**CONFIG, **config}))
        self.hostfile(hosts)
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA", "SSH"))}
        args = THERE["mpich"][2].format(ssh=self.work / "ssh.sh")
        return self.hosts["a"].start(
            "env", "-C", run, PROGRAM, "launch", "--hostfile", self.work / "hostfile", "--force_multi", "--launcher", "mpich",
            "--launcher_args", args, *options, *[word for setting in settings for word in ("--set", setting)], "config.json",
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**environment, "HOME": str(self.folder / "home"), "OMP_NUM_THREADS": "1"})

    def weights(self, name, *settings, **more):
        self.expect(Ended(self.train(name, *settings, **more)), 0)
        final = sorted((self.work / name / "run/final").glob("*.safetensors"))
        self.assertTrue(final)
        return [file.read_bytes() for file in final]

    def test_the_same_bits_with_and_without_shared_memory_and_on_one_host(self):
        pieces = "communicator.piece_bytes=16384"  # many of each sum
        shared = self.weights("shared", pieces)
        self.assertTrue(shared == self.weights("flat", pieces, "communicator.share=false"), "other weights without")
        self.assertTrue(shared == self.weights("alone", pieces, hosts="a slots=4\n"), "other weights on one host")

    def test_an_mpi_that_does_not_end_fails_no_run_that_is_done(self):
        """On rank 3; MPI_Finalize of the others waits for it. Each rank leaves by itself, with exit 0."""
        options = ("--env", f"LD_PRELOAD={os.environ['HOSTS_TEST_HANG_AT_END']}", "--env", "HANG_RANK=3")
        launch = self.train("hangs", options=options, communicator={"type": "mpi", "params": {"timeout_s": 6}})
        self.expect(Ended(launch), 0, "rank 3: MPI_Finalize did not return within 6 s, though every rank is done")
        self.assertTrue(list((self.work / "hangs/run/final").glob("*.safetensors")))
        self.expect_nothing_left()

    def test_a_killed_rank_leaves_no_memory(self):
        launch = self.train("killed", train_steps=1000000)
        metrics = self.work / "killed/run/metrics.jsonl"
        self.assertTrue(eventually(lambda: metrics.exists() and metrics.stat().st_size > 0))
        for host in self.hosts.values():  # what MPI has there is its own affair, but nobody else may read what is ours
            ours = [file for file in host.files() if "drivetrain" in file]
            self.assertEqual([file for file in ours if file.startswith("/dev/shm")], [])
        self.hosts["b"].run("pkill", "-KILL", "-n", "-f", "drivetrain train")
        self.expect(Ended(launch), 137, "on host b failed first: killed by signal 9")
        self.expect_nothing_left()
        for host in self.hosts.values():
            self.assertEqual([file for file in host.files() if "drivetrain" in file], [])


class Pbs(HostsTest):
    names = ("a", "b")

    def test_its_host_file_says_which_ranks_there_are(self):
        (self.work / "nodes").write_text("a\nb\r\nb\n")
        job = {"PBS_NODEFILE": str(self.work / "nodes"), "PBS_JOBID": "12.server"}
        ended = Ended(self.start('echo "$(hostname) $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE"; all_up',
                                 hostfile=False, env=job))
        self.expect(ended, 0, "PBS job 12.server has 3 slots on 2 hosts: ssh starts 3 ranks")
        lines = sorted(re.sub(r"^\[.*?\] ", "", line) for line in ended.out.splitlines())
        self.assertEqual(lines, ["a 0 of 3, 0 of 1", "b 1 of 3, 0 of 2", "b 2 of 3, 1 of 2"])
        self.expect(Ended(self.start("true", "-n", "2", hostfile=False, env=job)), 2, "-n 2: PBS job 12.server has 1 task "
                    "on host a")
        (self.work / "nodes").write_text("a slots=2\n")
        self.expect(Ended(self.start("true", hostfile=False, env=job)), 2, "nodes:1: wanted the name of a host")
