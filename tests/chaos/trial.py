"""A run of four ranks into which one fault is put: how it is started, what is done to it, what it says and leaves."""

import json
import os
import pathlib
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import launches

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "hosts"))
import namespaces
from waiting import eventually

RANKS = 4
TIMEOUT_S = 12  # of the communicator: long after the line that is waited for
MAY_TAKE_S = 90
MAY_STAND_STILL_S = 1.5
PLUGINS = {"reader": ("dataset", "read", "hang"), "hook": ("strategy", "before_forward", "hang"),
           "call": ("activation_checkpointing", "", "barrier"), "size": ("strategy", "", "wide sum")}
ON_HOSTS = ("host", "cut", "down")  # on two hosts; the others on one
KINDS = ("stop", "kill", *PLUGINS, *ON_HOSTS)
EXIT = {"kill": (128 + signal.SIGKILL,), "call": (3, 5), "size": (3, 5)}  # others: 5


def config(kind, rank, folder, communicator):
    made = {**launches.CONFIG, "train_steps": 10**8, "train_batch_size": 8, "output_dir": f"{folder}/run",
            "rendezvous_timeout_s": 20, "communicator": {"type": communicator, "params": {"timeout_s": TIMEOUT_S}}}
    if kind in PLUGINS:
        key, where, deed = PLUGINS[kind]
        made[key] = {"type": "misdeed", "params": {"in": where, "deed": deed, "rank": rank, "after": f"{folder}/now"}}
    return made


class Output:
    """The lines of a process, with the time when each came."""

    def __init__(self, pipe):
        self.lines = []
        self.reader = threading.Thread(target=self.read, args=(pipe,), daemon=True)
        self.reader.start()

    def read(self, pipe):
        for line in pipe:
            # Waits: when each line came is what is measured
            self.lines.append((time.monotonic(), line.decode("utf-8", "replace").rstrip()))

    def text(self):
        return "\n".join(line for _, line in list(self.lines))


def culprits_of(line):
    """The ranks that a line blames, an empty set where it blames nobody; None: a line about something else."""
    if found := re.search(r"rank (\d+)(?: on host \S+)? failed first: (?!exit 5 \(a peer|did not end after its error)", line):
        return {int(found[1])}
    if found := re.search(r"rank (\d+)(?: on host \S+)? is lost: ", line):
        return {int(found[1])}
    if found := re.search(r"host \S+ is lost, with ranks? ([\d, and-]+): ", line):
        first, *rest = [int(number) for number in re.findall(r"\d+", found[1])]
        return set(range(first, rest[-1] + 1)) if rest else {first}
    if found := re.search(r"ranks disagree about .*?: (rank.*)", line):
        texts = re.findall(r"ranks? ([\d, and]+) called", found[1])
        sides = [set(map(int, re.findall(r"\d+", text))) for text in texts]
        most = max(len(side) for side in sides)
        return set().union(*(side for side in sides if len(side) < most))
    if found := re.search(r"the run does not go on: (.*)", line):
        text = found[1]
        if "different calls" in text:
            return {int(number) for number in re.findall(r"; rank (\d+)(?: on host \S+)? is in ", text)}
        blamed = [part for part in text.split("; ") if not re.search(r"^ranks? [^;]* waits? in ", part)]
        return {int(number) for part in blamed for number in re.findall(r"\brank (\d+)", part)}
    return None


def processes_in(host):
    """What runs there, as this process numbers it."""
    own = os.readlink(f"/proc/{host.pid}/ns/pid")
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.readlink(entry / "ns/pid") == own:
                yield int(entry.name)
        except OSError:
            pass


def pid_of_rank(host, rank):
    for pid in processes_in(host):
        if f"\0RANK={rank}\0" in "\0" + launches.text_of(f"/proc/{pid}/environ"):
            if "\0train\0" in launches.text_of(f"/proc/{pid}/cmdline"):
                return pid
    raise RuntimeError(f"no process of rank {rank}")


class NotBegun(Exception):
    """The run did not get as far as the fault: the machine was too busy or stood still, or the run is broken."""


class Standstills:
    """How long this program itself did not run at a stretch: where it is frozen, so is what it measures."""

    def __init__(self):
        self.longest_s, self.over = 0, threading.Event()
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        before = time.monotonic()  # Waits: that is what is measured
        while not self.over.wait(0.1):
            now = time.monotonic()  # Waits: that is what is measured
            self.longest_s, before = max(self.longest_s, now - before), now


class Result:
    def __init__(self, kind, seconds, right, in_time, problems, said=""):
        self.kind, self.seconds, self.right, self.in_time, self.problems = kind, seconds, right, in_time, problems
        self.said = said


class Trial:
    def __init__(self, program, kind, seed, folder):
        self.program, self.kind = pathlib.Path(program).resolve(), kind
        self.choose = random.Random(seed)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="drivetrain_fault_", dir=folder))
        self.rank = self.choose.randrange(RANKS)
        self.host = "a" if self.rank < RANKS // 2 else "b"  # of a fault of a whole host
        # In communicator/tcp two ranks find that they differ; what the others call they do not know.
        self.communicator = "tcp" if kind in ON_HOSTS else "local" if kind in ("call", "size") else \
            self.choose.choice(("local", "tcp"))
        self.network = namespaces.Network(self.folder, ("a", "b", "c") if kind in ON_HOSTS else ("a",))
        self.launcher = self.network.hosts["c" if kind in ON_HOSTS else "a"]

    def label(self):
        whole = self.kind in ON_HOSTS
        return f"{self.kind} of {'host ' + self.host if whole else 'rank ' + str(self.rank)}, {self.communicator}"

    def start(self, **settings):
        run = self.folder / "work"
        run.mkdir()
        (run / "config.json").write_text(json.dumps({**config(self.kind, self.rank, run, self.communicator), **settings}))
        words = ["launch"] + (["--plugin-path", self.plugin_folder()] if self.kind in PLUGINS else [])
        if self.kind in ON_HOSTS:
            (run / "hostfile").write_text(f"a slots={RANKS // 2}\nb slots={RANKS // 2}\n")
            words += ["--hostfile", run / "hostfile", "--launcher_args", f"-F {self.folder}/ssh_config"]
        else:
            words += ["-n", RANKS]
        (self.folder / "home").mkdir()
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA", "SSH", "TMPDIR"))}
        self.process = self.launcher.start(
            "env", "-C", run, self.program, *words, run / "config.json", stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**environment, "HOME": str(self.folder / "home"), "OMP_NUM_THREADS": "1"})
        self.output = Output(self.process.stdout)
        self.metrics = run / "run/metrics.jsonl"

    def plugin_folder(self):
        found = list(self.program.parent.parent.glob("tests/misdeeds/lib"))
        if not found:
            sys.exit(f"the kinds {', '.join(PLUGINS)} take the program of a build with the target strategy_misdeed")
        return found[0]

    def wait_for_steps(self, count):
        made = lambda: launches.text_of(self.metrics).count("\n") >= count
        if not eventually(lambda: made() or self.process.poll() is not None) or not made():
            raise NotBegun(f"no {count} steps:\n{self.output.text()}")

    def put_fault(self):
        if self.kind in ("stop", "kill"):
            os.kill(pid_of_rank(self.launcher, self.rank), signal.SIGSTOP if self.kind == "stop" else signal.SIGKILL)
        elif self.kind == "host":
            self.network.hosts.pop(self.host).end()
        elif self.kind == "cut":
            self.network.cut(self.host)
        elif self.kind == "down":
            self.network.switch_off(self.host)
        else:
            (self.folder / "work/now").touch()

    def blamed(self):
        """The ranks that may be blamed: all of them on a host that is lost."""
        if self.kind not in ON_HOSTS:
            return {self.rank}
        return {rank for rank in range(RANKS) if (rank < RANKS // 2) == (self.host == "a")}

    def median_step_s(self):
        lines = launches.text_of(self.metrics).splitlines()[-200:]
        return statistics.median(json.loads(line)["step_s"] for line in lines if line.endswith("}"))

    def run(self):
        standstills = Standstills()
        try:
            result = self.try_once()
        finally:
            standstills.over.set()
        if standstills.longest_s > MAY_STAND_STILL_S:
            raise NotBegun(f"this program stood still for {standstills.longest_s:.1f} s")
        return result

    def try_once(self):
        try:
            self.start()
            self.wait_for_steps(self.choose.randrange(3, 150))
            self.put_fault()
            at = time.monotonic()  # Waits: that is what is measured
            try:
                code = self.process.wait(MAY_TAKE_S)
            except subprocess.TimeoutExpired:
                code = None
            return self.judge(at, code)
        finally:
            self.network.end()
            shutil.rmtree(self.folder, ignore_errors=True)

    def judge(self, at, code):
        if code is not None:
            self.output.reader.join(10)
        said = [(when - at, culprits_of(line), line) for when, line in self.output.lines]
        said = [(when, ranks, line) for when, ranks, line in said if ranks is not None]
        good = [when for when, ranks, _ in said if ranks and ranks <= self.blamed()]
        right = bool(good) and all(ranks <= self.blamed() and ranks for _, ranks, _ in said)
        seconds = good[0] if good else None
        in_time = seconds is not None and seconds <= max(5, 3 * self.median_step_s())
        problems = [] if right else ["the culprit is not named, or another one is"]
        if code not in EXIT.get(self.kind, (5,)):
            problems.append(f"exit {code}")
        problems += [f"left behind: {name}" for name in self.leftovers()]
        said = "\n".join(["from then on it said:"] + [f"{when - at:5.1f} s  {line}"
                                                      for when, line in self.output.lines if when > at])
        return Result(self.kind, seconds, right, in_time, problems, "" if in_time and not problems else said)

    def leftovers(self):
        left = lambda: [name for host in self.network.hosts.values() for name in left_on(host)]
        return [] if eventually(lambda: not left()) else left()


def left_on(host):
    """Processes but those of sshd, which waits for the other end of a cut link; files in /tmp and /dev/shm; ports."""
    listening = [line.split()[3] for line in host.run("ss", "-Hltn").stdout.splitlines()]
    left = host.processes() + host.files() + [port for port in listening if not port.endswith(":22")]
    return [f"{name} on host {host.name}" for name in left]
