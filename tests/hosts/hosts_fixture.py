"""What the tests of runs over several hosts share: a network of three hosts, made once in a process, an install folder whose
ranks are scripts, and a launch from host a."""

import multiprocessing.util
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import namespaces
import waiting
from waiting import DEADLINE_S, eventually

PROGRAM = pathlib.Path(os.environ["HOSTS_TEST_PROGRAM"])
LIBRARY = pathlib.Path(os.environ["HOSTS_TEST_LIBRARY"])
MISDEEDS = os.environ["HOSTS_TEST_MISDEEDS"]  # for --plugin-path
RELEASE = os.environ["HOSTS_TEST_TORCH_RELEASE"]
FOLDER = pathlib.Path(os.environ["HOSTS_TEST_FOLDER"])
NAMES = ("a", "b", "c")


def make_install(folder):
    """The program, and libraries that make a rank of RANK_SCRIPT; LibTorch as far as the program looks."""
    for sub in ("bin", "lib/drivetrain/commands", "torch/lib"):
        (folder / sub).mkdir(parents=True)
    shutil.copy(PROGRAM, folder / "bin/drivetrain")
    for name in ("libdrivetrain.so", "drivetrain/commands/train.so", "drivetrain/commands/bench.so", "drivetrain/commands/doctor.so"):
        shutil.copy(LIBRARY, folder / "lib" / name)
    hosts_doctor = "lib/drivetrain/commands/hosts_doctor.so"
    shutil.copy(pathlib.Path(PROGRAM).parent.parent / hosts_doctor, folder / hosts_doctor)
    for name in ("libc10.so", "libtorch_cpu.so"):
        shutil.copy(LIBRARY, folder / "torch/lib" / name)
    (folder / "torch/version.py").write_text(f"__version__ = '{RELEASE}'\n")


class Ended:
    def __init__(self, launch):
        self.out, self.err = (stream.decode("utf-8", "replace") for stream in launch.communicate(timeout=DEADLINE_S))
        self.code = launch.returncode
        self.text = f"exit {self.code}\n{self.out}\n{self.err}"


class Site:
    """A network, and the folder that its hosts see. They are gone when the process ends."""

    def __init__(self):
        FOLDER.mkdir(parents=True, exist_ok=True)
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=FOLDER))
        self.at_end(shutil.rmtree, self.folder, ignore_errors=True)
        make_install(self.folder / "install")
        (self.folder / "home").mkdir()
        (self.folder / "config.json").write_text("{}")
        self.network = namespaces.Network(self.folder, NAMES)
        self.at_end(self.network.end)

    @staticmethod
    def at_end(function, *words, **options):
        """Those that came last first."""
        multiprocessing.util.Finalize(None, function, words, options, exitpriority=1)


class HostsTest(unittest.TestCase):
    names = NAMES
    site = None

    @classmethod
    def setUpClass(cls):
        HostsTest.site = HostsTest.site or Site()
        cls.folder, cls.network = HostsTest.site.folder, HostsTest.site.network

    def setUp(self):
        self.hosts = {name: self.network.hosts[name] for name in self.names}
        self.work = self.folder / "work"
        self.work.mkdir()
        self.addCleanup(shutil.rmtree, self.work)
        self.hostfile("a slots=1\nb slots=2\n")

    def hostfile(self, text):
        (self.work / "hostfile").write_bytes(text.encode())

    def words(self, *options, ssh_config="ssh_config", hostfile=True):
        return [self.folder / "install/bin/drivetrain", "launch",
                *(("--hostfile", self.work / "hostfile") if hostfile else ()),
                *(("--launcher_args", f"-F {self.folder}/{ssh_config}") if ssh_config else ()),
                *options, self.folder / "config.json"]

    def environment(self, script, **more):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("DRIVETRAIN", "CUDA", "SSH"))}
        return {**clean, "DRIVETRAIN_TORCH": str(self.folder / "install/torch"), "RANK_SCRIPT": waiting.SHELL + script,
                "HOME": str(self.folder / "home"), "W": str(self.work), **more}

    def start(self, script, *options, on="a", env=None, **words):
        given = self.words("--env", "RANK_SCRIPT", "--env", "W", *options, **words)
        launch = self.hosts[on].start("env", "-C", self.work, *given, env=self.environment(script, **(env or {})),
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        self.addCleanup(lambda: launch.poll() is None and launch.kill())
        return launch

    def launch(self, script, *options, **more):
        return Ended(self.start(script, *options, **more))

    def wait_for(self, *names):
        """Until ranks have made these files in $W."""
        for name in names:
            self.assertTrue(eventually(lambda: (self.work / name).exists()), f"no {name}")

    def expect(self, ended, code, *words):
        self.assertEqual(ended.code, code, ended.text)
        for word in words:
            self.assertIn(word, ended.err, ended.text)

    def on_host(self, name, *words):
        """What a mount needs: an agent's last moments in a folder keep it busy."""
        def done():
            try:
                self.hosts[name].run(*words)
                return True
            except RuntimeError as e:
                if "busy" not in str(e):
                    raise
                return False
        self.assertTrue(eventually(done), words)

    def mount(self, name, *words):
        """On that host alone: each host mounts for itself. `words`: of the command, the folder last."""
        self.on_host(name, "mount", *words)
        self.addCleanup(self.on_host, name, "umount", words[-1])

    def end_host(self, name):
        self.hosts.pop(name).end()
        self.addCleanup(self.network.renew, name)

    def expect_code(self, launch, code):
        """Returns what it said on stderr."""
        ended = Ended(launch)
        self.assertEqual(ended.code, code, ended.text)
        return ended.err

    def expect_nothing_left(self):
        for host in self.hosts.values():
            self.assertTrue(eventually(lambda: not host.processes()), f"{host.name}: {host.processes()}")
            self.assertEqual(host.files(), [], host.name)
