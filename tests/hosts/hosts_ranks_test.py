#!/usr/bin/env python3
"""What `drivetrain launch` gives the ranks of each host beside their numbers: a config that can be read only once, logs of
their own, cores of their own; and what is left of all that in the end."""

import os
import re
import stat
import subprocess

import namespaces
from hosts_fixture import Ended, HostsTest

LEAVES_CHILDREN = ('(exec sleep 1001) & setsid sleep 1002 & touch "$W/up$RANK"; exec sleep 1003')


class Setup(HostsTest):
    names = ("a", "b")

    def logs(self, folder="logs"):
        return {int(re.fullmatch(r"\d{14}_rank(\d+)\.log", file.name)[1]): file for file in (self.work / folder).iterdir()}

    def test_each_rank_has_a_log(self):
        script = (r'echo "out of $RANK"; printf "\377\376 no text\n" >&2; yes "line of $RANK" | head -n 50000; '
                  '[ $RANK = 2 ] && { sleep 0.5; echo "drivetrain: error: the cause" >&2; exit 7; }; exit 0')
        ended = self.launch(script, "--enable_each_rank_log", "logs/of_ranks")
        self.expect(ended, 7, "rank 2 on host b failed first: exit 7", "drivetrain: error: the cause", "_rank2.log")
        self.assertEqual(ended.out, "")
        self.assertNotIn("no text", ended.err.replace("\n  ", "\n")[:ended.err.find("failed first")])
        logs = self.logs("logs/of_ranks")
        self.assertEqual(sorted(logs), [0, 1, 2])
        for rank, file in logs.items():
            self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o600)
            text = file.read_bytes()
            self.assertEqual(text.count(b"line of %d\n" % rank), 50000)
            self.assertIn(b"\377\376 no text\n", text)
        self.expect_nothing_left()

    def test_logs_that_cannot_be(self):
        (self.work / "taken").write_text("")
        self.expect(self.launch("touch $W/ran", "--enable_each_rank_log", "taken"), 2,
                    "host a: --enable_each_rank_log wants a folder, and taken is none", "no rank was started")
        (self.work / "link").symlink_to("/nowhere/there")
        self.expect(self.launch("touch $W/ran", "--enable_each_rank_log", "link/logs"), 8, "cannot be made")
        self.assertFalse((self.work / "ran").exists())

    def test_on_one_host(self):
        self.hostfile("a slots=2\n")
        ended = self.launch('echo "$RANK"; echo "error $RANK" >&2', "--enable_each_rank_log", "logs", ssh_config=None)
        self.expect(ended, 0)
        self.assertEqual((ended.out, ended.err), ("", ""))
        self.assertEqual([sorted(file.read_text().split()) for _, file in sorted(self.logs().items())],
                         [["0", "0", "error"], ["1", "1", "error"]])

    def test_a_config_that_can_be_read_only_once(self):
        words = self.words("--env", "RANK_SCRIPT", "--env", "W")
        for config, given in (("-", "/dev/stdin"), ("/dev/stdin", "/dev/stdin"), ("fifo", "/dev/fd/47")):
            script = f'cat {given} > "$W/read$RANK"'
            where = self.work / "fifo" if config == "fifo" else config
            if config == "fifo":
                os.mkfifo(where)
            launch = self.hosts["a"].start("env", "-C", self.work, *words[:-1], where, env=self.environment(script),
                                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            text = '{"a": "' + "x" * 100000 + '"}'
            if config == "fifo":
                where.write_text(text)
            else:
                launch.stdin.write(text.encode())
            launch.stdin.close()
            launch.stdin = None
            self.expect(Ended(launch), 0)
            for rank in range(3):
                self.assertEqual((self.work / f"read{rank}").read_text(), text, config)
                (self.work / f"read{rank}").unlink()

    def test_cores(self):
        usable = sorted(os.sched_getaffinity(0))
        if len(usable) < 2:
            self.skipTest("one core")
        self.hostfile("a slots=1\nb slots=2\n")
        said = 'echo "$RANK: $OMP_NUM_THREADS $(taskset -cp $$)"'
        ended = self.launch(said, "--bind_cores_to_rank", "--bind_core_list", ",".join(map(str, usable[:2])))
        self.expect(ended, 0)
        both = f"{usable[0]},{usable[1]}" if usable[1] > usable[0] + 1 else f"{usable[0]}[,-]{usable[1]}"
        for rank, threads, cores in ((0, 2, both), (1, 1, usable[0]), (2, 1, usable[1])):
            self.assertRegex(ended.out, rf"{rank}: {threads} .* affinity list: {cores}\n")
        self.expect(self.launch("touch $W/ran", "--bind_cores_to_rank", "--bind_core_list", str(usable[0])), 2,
                    "host b: --bind_cores_to_rank: 2 ranks and 1 cores in --bind_core_list", "no rank was started")
        self.assertFalse((self.work / "ran").exists())

    def test_save_pid(self):
        launch = self.start('touch "$W/up$RANK"; sleep 100', "--save_pid")
        self.wait_for("up0", "up1", "up2")
        (name,) = (file for file in self.hosts["a"].files() if file.endswith(".deepspeed"))
        pid = self.hosts["a"].run("cat", name).stdout
        self.assertEqual(name, f"/tmp/{pid}.deepspeed")
        self.assertIn("launch", self.hosts["a"].run("ps", "-o", "args=", "-p", pid).stdout)
        self.hosts["a"].run("kill", "-INT", pid)
        self.assertEqual(launch.wait(30), 130)
        self.expect_nothing_left()

    def children_go_with(self, program, host, **more):
        launch = self.start(LEAVES_CHILDREN, **more)
        self.wait_for("up0", "up1", "up2")
        pid = self.hosts[host].run("pgrep", "-o", "-f", program).stdout.split()[0]
        self.hosts[host].run("kill", "-KILL", pid)
        launch.wait(30)
        self.expect_nothing_left(5)
        for file in self.work.glob("up*"):
            file.unlink()

    def test_children_of_ranks_where_the_agent_or_the_launcher_is_killed(self):
        self.children_go_with("drivetrain agent", "b")
        self.hostfile("a slots=3\n")
        self.children_go_with("drivetrain launch", "a", ssh_config=None)


if __name__ == "__main__":
    namespaces.run_tests()
