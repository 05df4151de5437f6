"""`drivetrain launch` inside jobs of a real SLURM: what ranks are told, what is refused, how runs end."""

import re
import signal
import subprocess

from hosts_fixture import Ended, eventually
from slurm_cluster import SlurmTest, why_not  # noqa: F401  why_not is what run_suite.py asks

RANK = 'echo "$(hostname) $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE, slurm $SLURM_PROCID"; all_up'


class InAJob(SlurmTest):
    def in_job(self, script, *options, tasks=("-N2", "--ntasks-per-node=2"), before=(), job=("salloc", "-Q")):
        """A launch, in a job if one is named."""
        for file in self.work.glob("up*"):
            file.unlink()
        words = [*job, *tasks, *before] if job else list(before)
        launch = self.hosts["a"].start(
            "env", "-C", self.work, *words, *self.words("--env", "RANK_SCRIPT", "--env", "W", *options, ssh_config=None,
                                                        hostfile=False),
            env=self.cluster.environment(**self.environment(script)), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL)
        self.addCleanup(lambda: launch.poll() is None and launch.kill())
        return launch

    def ended(self, *words, **more):
        return Ended(self.in_job(*words, **more))

    def ranks(self, ended):
        self.expect(ended, 0)
        return sorted(re.sub(r"^\[.*?\] ", "", line) for line in ended.out.splitlines())

    def expect_nothing_left(self):
        """But for SLURM's own."""
        for host in self.hosts.values():
            left = host.processes_of_ours
            self.assertTrue(eventually(lambda: not left()), f"{host.name}: {left()}")

    def test_a_job_says_which_ranks_there_are(self):
        ended = self.ended(RANK)
        self.assertEqual(self.ranks(ended), [
            "a 0 of 4, 0 of 2, slurm 0", "a 1 of 4, 1 of 2, slurm 1", "b 2 of 4, 0 of 2, slurm 2", "b 3 of 4, 1 of 2, slurm 3"])
        self.assertRegex(ended.err, r"SLURM job \d+ has 2 tasks on each of 2 hosts: srun starts 4 ranks")
        ended = self.ended(RANK, "--include", "a:1@b")
        self.assertEqual(self.ranks(ended), [
            "a 0 of 3, 0 of 1, slurm 0", "b 1 of 3, 0 of 2, slurm 1", "b 2 of 3, 1 of 2, slurm 2"])
        ended = self.ended(RANK, "-n", "2", tasks=("-N1", "-n1"))  # of this host, as everywhere
        self.assertEqual(self.ranks(ended), ["a 0 of 2, 0 of 2, slurm ", "a 1 of 2, 1 of 2, slurm "])

    def test_each_task_of_srun_becomes_a_rank(self):
        ended = self.ended('echo "$SLURM_PROCID of $SLURM_STEP_NUM_TASKS"', before=("srun",))
        self.assertEqual(self.ranks(ended), [f"{rank} of 4" for rank in range(4)])
        self.assertEqual(ended.err.count("srun has started 4 processes of this command"), 1, ended.text)

    def test_what_is_refused_before_anything_starts(self):
        self.expect(self.ended(RANK, "-n", "3"), 2, "-n 3: SLURM job", "has 2 tasks on host a", "--ntasks-per-node=3")
        self.expect(self.ended(RANK, "--num_nodes", "3"), 2, "--num_nodes 3: SLURM job", "has 2 hosts")
        self.expect(self.ended(RANK, "--max-restarts", "1"), 2, "--max-restarts: not in this version")
        self.expect(self.ended(RANK, "--launcher", "slurm", job=(), tasks=()), 2, "this is no SLURM job", "--submit FILE")

    def test_the_first_failure_is_named(self):
        ended = self.ended("all_up; [ $RANK = 3 ] && { echo why >&2; exit 7; }; hold")
        self.expect(ended, 7, "rank 3 on host b failed first: exit 7 (numeric failure)", "why")
        self.expect_nothing_left()

    def test_srun_that_cannot_start_tasks(self):
        ended = self.ended(RANK, "--launcher_args", "--gres=gpu:1")
        self.expect(ended, 5, "did not come: srun ended with exit", "no rank was started")

    def test_a_cancelled_job_is_told_once_and_stays_cancelled(self):
        """scancel signals every process of the job, and the launch passes its signal on: a second one would kill."""
        launch = self.in_job("""trap 'echo TERM >> "$W/terms$RANK"; stop=1' TERM; touch "$W/up$RANK"
                             is_told() { test "$stop"; }; until_it is_told
                             let_pass 2.5  # Waits: a second one would come within 1.5 s
                             exit 75""",
                             "--submit", "job.sh", "--num_nodes", "2", "-n", "1", job=(), tasks=())
        ended = Ended(launch)
        self.expect(ended, 0)
        job = ended.out.split()[-1]
        self.wait_for("up0", "up1")
        self.cluster.run("scancel", job)
        state = lambda: self.cluster.run("scontrol", "show", "job", job).stdout
        self.assertTrue(eventually(lambda: "JobState=CANCELLED" in state()), state())
        self.assertIn("ExitCode=75:0", state())
        self.assertEqual([(self.work / f"terms{rank}").read_text() for rank in (0, 1)], ["TERM\n"] * 2)
        ended = Ended(self.in_job("true", "--submit", "job.sh", job=(), tasks=()))
        self.expect(ended, 2, "the file job.sh is there already", "`sbatch job.sh` submits it as it is")

    def test_the_secret_and_a_signal(self):
        launch = self.in_job('echo "$DRIVETRAIN_RUN_TOKEN" > "$W/token$RANK"; trap "exit 143" TERM; touch "$W/up$RANK"; '
                             "idle")
        self.wait_for(*(f"up{rank}" for rank in range(4)))
        token = (self.work / "token0").read_text().strip()
        self.assertEqual({(self.work / f"token{rank}").read_text().strip() for rank in range(4)}, {token})
        self.assertGreaterEqual(len(token), 32)
        for host in self.hosts.values():
            self.assertNotIn(token, "".join(host.processes()))
        self.hosts["a"].run("pkill", "-TERM", "-f", "bin/drivetrain launch --env")
        launch.send_signal(signal.SIGCONT)
        ended = Ended(launch)
        self.expect(ended, 143)
        self.expect_nothing_left()
