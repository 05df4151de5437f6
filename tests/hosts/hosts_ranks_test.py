"""What `drivetrain launch` gives the ranks of each host beside their numbers: a config that can be read only once, logs of
their own, cores of their own; and what is left of all that in the end."""

import os
import re
import signal
import stat
import subprocess
import threading

from hosts_fixture import Ended, HostsTest, eventually
from waiting import DEADLINE_S

LEAVES_CHILDREN = '(hold) & setsid $STAY & touch "$W/up$RANK"; hold'


class Setup(HostsTest):
    names = ("a", "b")

    def logs(self, folder="logs"):
        return {int(re.fullmatch(r"\d{14}_rank(\d+)\.log", file.name)[1]): file for file in (self.work / folder).iterdir()}

    def test_each_rank_has_a_log(self):
        script = (r'echo "out of $RANK"; printf "\377\376 no text\n" >&2; yes "line of $RANK" | head -n 50000; '
                  'all_up; [ $RANK = 2 ] && { echo "drivetrain: error: the cause" >&2; exit 7; }; exit 0')
        ended = self.launch(script, "--enable_each_rank_log", "logs/of_ranks")
        self.expect(ended, 7, "rank 2 on host b failed first: exit 7", "drivetrain: error: the cause", "_rank2.log")
        self.assertEqual(ended.out, "")
        self.assertNotIn("no text", ended.err.replace("\n  ", "\n")[:ended.err.find("failed first")])
        logs = self.logs("logs/of_ranks")
        self.assertEqual(sorted(logs), [0, 1, 2])
        for rank, file in logs.items():
            self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o600)
            text = file.read_bytes()
            self.assertIn(b"\377\376 no text\n", text)
            for error in (b"\377\376 no text\n", b"drivetrain: error: the cause\n"):  # another pipe: it may cut a line
                text = text.replace(error, b"")
            self.assertEqual(text.count(b"line of %d\n" % rank), 50000)
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
        launch = self.start('touch "$W/up$RANK"; $STAY', "--save_pid")
        self.wait_for("up0", "up1", "up2")
        (name,) = (file for file in self.hosts["a"].files() if file.endswith(".deepspeed"))
        pid = self.hosts["a"].run("cat", name).stdout
        self.assertEqual(name, f"/tmp/{pid}.deepspeed")
        self.assertIn("launch", self.hosts["a"].run("ps", "-o", "args=", "-p", pid).stdout)
        self.hosts["a"].run("kill", "-INT", pid)
        self.expect_code(launch, 130)
        self.expect_nothing_left()

    def children_go_with(self, program, host, **more):
        launch = self.start(LEAVES_CHILDREN, **more)
        self.wait_for("up0", "up1", "up2")
        pid = self.hosts[host].run("pgrep", "-o", "-f", program).stdout.split()[0]
        self.hosts[host].run("kill", "-KILL", pid)
        launch.wait(DEADLINE_S)
        self.expect_nothing_left()
        for file in self.work.glob("up*"):
            file.unlink()

    def test_children_of_ranks_where_the_agent_or_the_launcher_is_killed(self):
        self.children_go_with("drivetrain agent", "b")
        self.hostfile("a slots=3\n")
        self.children_go_with("drivetrain launch", "a", ssh_config=None)


class Suspended(HostsTest):
    """Ctrl-Z stops the launcher; the ranks of all hosts have to stand still with it, and to go on."""
    names = ("a", "b")

    def states(self):
        found = []
        for rank, host in enumerate(("a", "b", "b")):
            pid = (self.work / f"pid{rank}").read_text().strip()
            stat = subprocess.run(self.hosts[host].words("cat", f"/proc/{pid}/stat"), capture_output=True, text=True).stdout
            found.append(stat[stat.rfind(")") + 2:][:1])
        return set(found)

    def test_ranks_of_all_hosts_stand_still_with_the_launcher(self):
        launch = self.start('echo $$ > "$W/pid$RANK"; all_up; await go; exit 0')
        self.wait_for("up0", "up1", "up2")
        self.hosts["a"].run("pkill", "-TSTP", "-f", "drivetrain launch")
        self.assertTrue(eventually(lambda: self.states() == {"T"}), self.states())
        (self.work / "go").touch()
        launch.send_signal(signal.SIGCONT)  # nsenter has stopped with its child, and continues it
        self.expect(Ended(launch), 0)
        self.expect_nothing_left()


class Floods(HostsTest):
    """More than the launcher can pass on: ranks wait with what they write, and nothing is lost."""
    names = ("a", "b")
    LINES = 1000000  # of each rank: what it is to print in a second
    BAD = r"$(printf '\377\376')"  # bytes that are no UTF-8

    def either_way(self):
        """The name of rank 1's host in messages, and what to launch with."""
        for hostfile, where, ssh_config in (("a slots=1\nb slots=2\n", " on host b", "ssh_config"), ("a slots=3\n", "", None)):
            with self.subTest(hostfile):
                self.hostfile(hostfile)
                yield where, {"ssh_config": ssh_config}

    def memory_mb(self):
        """The most that a launcher or an agent ever had."""
        found = []
        for host in self.hosts.values():
            pids = subprocess.run(host.words("pgrep", "-f", "drivetrain (launch|agent)"), capture_output=True, text=True).stdout
            for pid in pids.split():
                status = subprocess.run(host.words("cat", f"/proc/{pid}/status"), capture_output=True, text=True).stdout
                found += [int(kb) / 1024 for kb in re.findall(r"VmHWM:\s+(\d+)", status)]
        return max(found)

    def flood(self, script, **more):
        """To a file, which takes all: the launcher is the slowest."""
        out, err = (open(self.work / name, "wb") for name in ("out", "err"))
        launch = self.hosts["a"].start("env", "-C", self.work, *self.words("--env", "RANK_SCRIPT", "--env", "W", **more), stdout=out,
                                       stderr=err, stdin=subprocess.DEVNULL, env=self.environment(script))
        self.addCleanup(lambda: launch.poll() is None and launch.kill())
        return launch

    def said(self):
        return (self.work / "out").read_bytes(), (self.work / "err").read_bytes()

    def test_a_million_lines_of_each_rank(self):
        for where, how in self.either_way():
            launch = self.flood(f'yes "$RANK 0123456789 {self.BAD}" | head -n {self.LINES}; touch "$W/up$RANK"; await go; '
                                f'[ $RANK = 2 ] && {{ touch "$W/failed"; echo "last {self.BAD} words" >&2; exit 7; }}; '
                                'await failed; exit 5', **how)
            self.wait_for("up0", "up1", "up2")
            self.assertLess(self.memory_mb(), 48)
            (self.work / "go").touch()
            self.assertEqual(launch.wait(DEADLINE_S), 7)
            out, err = self.said()
            prefix = rb"[b rank %d] " if where else rb"[rank %d] "
            for rank in (1, 2):
                self.assertEqual(out.count(prefix % rank + b"%d 0123456789 \377\376\n" % rank), self.LINES)
            of_rank_0 = re.sub(rb"\[(b )?rank \d\] [^\n]*\n", b"", out)  # whose bytes pass as they come
            self.assertEqual(of_rank_0, b"0 0123456789 \377\376\n" * self.LINES)
            self.assertIn(prefix % 2 + b"last \377\376 words\n", err)
            self.assertIn(f"drivetrain launch: rank 2{where} failed first: exit 7".encode(), err)
            self.assertIn(b"its last lines:\n  last \\xff\\xfe words\n", err)  # quoted as text
            self.expect_nothing_left()
            for file in self.work.glob("[ugf]*"):
                file.unlink()

    def test_a_signal_while_nobody_takes_the_output(self):
        for where, how in self.either_way():
            launch = self.start('touch "$W/up$RANK"; exec yes "$RANK"', **how)
            self.wait_for("up0", "up1", "up2")
            self.hosts["a"].run("pkill", "-TERM", "-f", "drivetrain launch")
            self.assertEqual(launch.wait(DEADLINE_S), 143)
            self.expect_nothing_left()
            for file in self.work.glob("up*"):
                file.unlink()

    def test_ends_in_the_midst_of_a_flood(self):
        """Of both streams of all ranks, without end, into pipes that are read as fast as it goes."""
        flood = f'yes "$RANK {self.BAD}" & yes "error of $RANK {self.BAD}" >&2 & all_up; await flooded; '
        for where, how in self.either_way():
            for script, ask, code, words in (
                    ('[ $RANK = 1 ] && { touch "$W/failed"; kill -SEGV $$; }; await failed; exit 5', None, 139,
                     f"rank 1{where} failed first: killed by signal 11"),
                    ('[ $RANK = 1 ] && { touch "$W/failed"; exit 8; }; await failed; exit 5', None, 8,
                     f"rank 1{where} failed first: exit 8"),
                    ('trap "exit 75" TERM; touch "$W/minds$RANK"; $STAY & wait $!', "-TERM", 75, None)):
                launch = self.start(flood + script, **how)
                readers = [Reader(stream) for stream in (launch.stdout, launch.stderr)]
                try:
                    self.assertTrue(eventually(lambda: min(reader.lines_of_rank_2 for reader in readers) > 100))
                    (self.work / "flooded").touch()
                    if ask:
                        self.wait_for("minds0", "minds1", "minds2")
                        self.hosts["a"].run("pkill", ask, "-f", "drivetrain launch")
                    self.assertEqual(launch.wait(DEADLINE_S), code)
                finally:
                    launch.kill()  # so that readers end
                    for reader in readers:
                        reader.join()
                self.assertTrue(words is None or words.encode() in readers[1].last, readers[1].last)
                self.expect_nothing_left()
                for file in self.work.glob("[ufm]*"):
                    file.unlink()


class Reader(threading.Thread):
    """Keeps the last bytes of a stream, and counts the lines of rank 2."""

    def __init__(self, stream):
        super().__init__()
        self.stream, self.last, self.lines_of_rank_2 = stream, b"", 0
        self.start()

    def run(self):
        while part := self.stream.read1(1 << 20):
            self.lines_of_rank_2 += part.count(b"rank 2] ")
            self.last = (self.last + part)[-10000:]
