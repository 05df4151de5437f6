"""What the tests of runs over several hosts share: a network of three hosts, an install folder whose ranks are scripts,
and a launch from host a."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import unittest

import namespaces

PROGRAM = pathlib.Path(os.environ["HOSTS_TEST_PROGRAM"])
LIBRARY = pathlib.Path(os.environ["HOSTS_TEST_LIBRARY"])
RELEASE = os.environ["HOSTS_TEST_TORCH_RELEASE"]
FOLDER = pathlib.Path(os.environ["HOSTS_TEST_FOLDER"])
NAMES = ("a", "b", "c")
MAY_TAKE_S = 60  # far more than any launch here


def make_install(folder):
    """The program, and a library that makes a rank of RANK_SCRIPT; LibTorch as far as the program looks."""
    for sub in ("bin", "lib", "torch/lib"):
        (folder / sub).mkdir(parents=True)
    shutil.copy(PROGRAM, folder / "bin/drivetrain")
    shutil.copy(LIBRARY, folder / "lib/libdrivetrain.so")
    for name in ("libc10.so", "libtorch_cpu.so"):
        shutil.copy(LIBRARY, folder / "torch/lib" / name)
    (folder / "torch/version.py").write_text(f"__version__ = '{RELEASE}'\n")


class Ended:
    def __init__(self, launch):
        self.out, self.err = (stream.decode("utf-8", "replace") for stream in launch.communicate(timeout=MAY_TAKE_S))
        self.code = launch.returncode
        self.text = f"exit {self.code}\n{self.out}\n{self.err}"


def eventually(condition, within_s=20):
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


class HostsTest(unittest.TestCase):
    names = NAMES

    @classmethod
    def setUpClass(cls):
        FOLDER.mkdir(parents=True, exist_ok=True)
        cls.folder = pathlib.Path(tempfile.mkdtemp(dir=FOLDER))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        make_install(cls.folder / "install")
        (cls.folder / "home").mkdir()
        (cls.folder / "config.json").write_text("{}")
        cls.network = namespaces.Network(cls.folder, cls.names)
        cls.addClassCleanup(cls.network.end)
        cls.hosts = cls.network.hosts

    def setUp(self):
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
        return {**clean, "DRIVETRAIN_TORCH": str(self.folder / "install/torch"), "RANK_SCRIPT": script,
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

    def expect_nothing_left(self, within_s=20):
        for host in self.hosts.values():
            self.assertTrue(eventually(lambda: not host.processes(), within_s), f"{host.name}: {host.processes()}")
            self.assertEqual(host.files(), [], host.name)
