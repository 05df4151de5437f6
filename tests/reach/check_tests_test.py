"""check_tests.py on small trees with tests of `cat` and `sh`. Usage: check_tests_test.py OPENED_LIBRARY"""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPO = HERE.parent.parent
LIBRARY = Path(sys.argv.pop())


class SmallTree(unittest.TestCase):
    """A checkout with two data files and a build folder with two tests, each of which reads one of them."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.source = Path(self.folder.name).resolve() / "source"
        self.build = self.source / "build"
        (self.build / "tests/lib").mkdir(parents=True)
        for folder in ("lib", "bin", "include/drivetrain"):
            (self.build / folder).mkdir(parents=True)
        (self.build / "include/drivetrain/api_digest.h").touch()
        shutil.copy(LIBRARY, self.build / "tests/lib/libdrivetrain_opened.so")
        self.torch("a")
        for name in ("one", "two"):
            (self.source / name).write_text(f"{name}\n", encoding="utf-8")
        subprocess.run(["git", "init", "-q", self.source], check=True)
        (self.source / ".gitignore").write_text("/build/\n", encoding="utf-8")
        self.declare({"first": (["cat", self.source / "one"], "one"), "second": (["cat", self.source / "two"], "two")})

    def torch(self, name):
        torch = self.source.parent / name
        (torch / "lib").mkdir(parents=True, exist_ok=True)
        (torch / "lib/libtorch_cpu.so").touch()
        (self.build / "CMakeCache.txt").write_text(f"DRIVETRAIN_TORCH:PATH={torch}\n", encoding="utf-8")

    def declare(self, tests):
        lines, reach = [], []
        for name, (command, words) in tests.items():
            quoted = " ".join(f'"{word}"' for word in [HERE / "run_test", name, *command])
            lines.append(f'add_test({name} {quoted})\nset_tests_properties({name} PROPERTIES SKIP_RETURN_CODE 77)\n')
            reach.append(f"{name}\t{words}\n")
        (self.build / "CTestTestfile.cmake").write_text("".join(lines), encoding="utf-8")
        (self.build / "tests/reach.txt").write_text("".join(reach), encoding="utf-8")

    def command(self, *options):
        return [sys.executable, "-B", HERE / "check_tests.py", self.source, self.build, *options]

    def check(self, *options, ci="true"):
        """(exit status, what it said, the tests that ran)."""
        environment = dict(os.environ, CI=ci)
        ended = subprocess.run(self.command(*options), capture_output=True, text=True, check=False, env=environment)
        text = ended.stdout + ended.stderr
        return ended.returncode, text, re.findall(r"Test +#\d+: (\S+) \.", text)

    def test_runs_what_can_reach_a_change(self):
        self.assertEqual(self.check()[2], ["first", "second"])
        code, text, ran = self.check()
        self.assertEqual((code, ran), (0, []), text)
        (self.source / "two").write_text("2\n", encoding="utf-8")
        code, text, ran = self.check()
        self.assertEqual((code, ran), (0, ["second"]), text)
        self.assertIn("1 for two", text)
        self.assertEqual(self.check()[2], [])
        self.assertEqual(self.check("--all")[2], ["first", "second"])

    def test_what_starts_the_program_runs_last(self):
        self.declare({"a": (["true"], "program"), "b": (["true"], "program"), "c": (["cat", self.source / "one"], "one")})
        self.assertEqual(self.check("-j", "1")[2], ["c", "a", "b"])

    def test_what_took_seconds_runs_after_what_did_not(self):
        self.declare({"a": (["cat", self.source / "one"], "one"), "b": (["cat", self.source / "two"], "two")})
        (self.build / "Testing/Temporary").mkdir(parents=True)
        (self.build / "Testing/Temporary/CTestCostData.txt").write_text("a 1 60.5\nb 1 0.2\n---\n", encoding="utf-8")
        self.assertEqual(self.check("-j", "1")[2], ["b", "a"])
        self.assertEqual(self.check("--all", "-j", "1")[2], ["a", "b"])

    def test_the_same_content_is_no_change(self):
        self.check()
        (self.source / "two").write_text("two\n", encoding="utf-8")
        self.assertEqual(self.check()[2], [])

    def test_a_changed_command_is_one(self):
        self.check()
        self.declare({"first": (["cat", "-n", self.source / "one"], "one"), "second": (["cat", self.source / "two"], "two")})
        self.assertEqual(self.check()[2], ["first"])

    def test_what_fails_runs_again(self):
        self.declare({"first": (["cat", self.source / "one"], "one"), "second": (["false"], "commands")})
        code, text, ran = self.check()
        self.assertNotEqual(code, 0, text)
        self.assertEqual(ran, ["first", "second"])
        self.assertEqual(self.check()[2], ["second"])

    def test_what_is_skipped_says_why_and_runs_again(self):
        self.declare({"first": (["sh", "-c", "echo no namespaces here && exit 77"], "commands")})
        code, text, _ = self.check()
        self.assertEqual(code, 0, text)
        self.assertIn("skipped: first: no namespaces here", text)
        self.assertEqual(self.check()[2], ["first"])

    def test_refuses_what_was_opened_undeclared(self):
        self.declare({"first": (["sh", "-c", f"cd {self.source} && cat o* t*"], "one")})
        for _ in range(2):  # it is not stamped
            code, text, ran = self.check()
            self.assertEqual((code, ran), (1, ["first"]), text)
            self.assertRegex(text, r"error: first passed, but it opened what its REACHES does not declare: two\.")
        code, text, ran = self.check(ci="")  # a machine with other devices opens other plugins
        self.assertEqual((code, ran), (0, ["first"]), text)
        self.assertIn("warning: first passed, but it opened", text)

    def test_refuses_a_library_that_was_loaded_undeclared(self):
        library = self.build / "lib/libours.so"
        shutil.copy(LIBRARY, library)
        load = [sys.executable, "-c", "import ctypes, sys; ctypes.CDLL(sys.argv[1])"]
        (self.source / "name").write_text(str(library), encoding="utf-8")
        hidden = ["sh", "-c", f"{sys.executable} -c 'import ctypes; ctypes.CDLL(open(\\\"{self.source}/name\\\").read())'"]
        self.declare({"first": (load + [library], "commands"), "second": (hidden, "name")})
        code, text, _ = self.check()
        self.assertEqual(code, 1, text)
        self.assertRegex(text, r"second passed, but it opened .*: build/lib/libours\.so\.")
        self.assertNotIn("first passed, but", text)

    def test_refuses_a_test_without_declaration(self):
        (self.build / "tests/reach.txt").write_text("first\tone\nsecond\t\n", encoding="utf-8")
        code, text, ran = self.check()
        self.assertEqual((code, ran), (1, []))
        self.assertRegex(text, r"error: .*do not declare what they reach: second\. Add REACHES")

    def test_refuses_a_word_that_names_nothing(self):
        (self.build / "tests/reach.txt").write_text("first\tone\nsecond\ttwoo\n", encoding="utf-8")
        code, text, ran = self.check()
        self.assertEqual((code, ran), (1, []))
        self.assertIn('second: REACHES has "twoo"', text)

    def test_another_libtorch_runs_all_and_says_so(self):
        self.check()
        self.torch("b")
        code, text, ran = self.check()
        self.assertEqual((code, ran), (0, ["first", "second"]), text)
        self.assertRegex(text, r"2 for another LibTorch than they passed with: .*/a \(0 bytes\), now .*/b \(0 bytes\)")

    def test_an_interrupted_check_goes_on(self):
        waits = ["sh", "-c", f"test -e {self.build}/go || sleep 600"]  # Waits: killed as soon as the first test has passed
        self.declare({"first": (["cat", self.source / "one"], "one"), "second": (waits, "commands")})
        with subprocess.Popen(self.command("-j", "1"), stdout=subprocess.PIPE, text=True, start_new_session=True,
                              preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) as check:  # a background job ignores it
            for line in check.stdout:
                if re.search(r"first \.+ +Passed", line):
                    os.killpg(check.pid, signal.SIGINT)  # as Ctrl-C does
            check.wait()
        self.assertNotEqual(check.returncode, 0)
        (self.build / "go").touch()
        code, text, ran = self.check()
        self.assertEqual((code, ran), (0, ["second"]), text)

    def test_a_second_check_of_the_tree_waits(self):
        shutil.copytree(REPO / "tools/setup", self.source / "tools/setup")
        shutil.copy(REPO / "tools/check", self.source / "tools/check")
        lock = self.build / "check.lock"
        # Waits: it is killed at the end of this block
        with subprocess.Popen(["flock", lock, "sh", "-c", "echo held && exec sleep 600"], stdout=subprocess.PIPE,
                              text=True, start_new_session=True) as first:  # Waits: killed at the end of this block
            self.assertEqual(first.stdout.readline(), "held\n")
            with subprocess.Popen([self.source / "tools/check"], stdout=subprocess.PIPE, text=True, start_new_session=True) as second:
                self.assertEqual(second.stdout.readline(), "-- another check of this tree is running: waiting for it to end\n")
                os.killpg(second.pid, signal.SIGKILL)  # with the children, which would hold the output of this test open
            os.killpg(first.pid, signal.SIGKILL)

    def test_the_whole_check_ends_with_the_status_of_its_parts(self):
        for name, text in {"setup/common.sh": (REPO / "tools/setup/common.sh").read_text(encoding="utf-8"),
                           "setup/packages.sh": "install_packages() { :; }\n", "setup/wheels.sh": "ensure_torch() { :; }\n",
                           "setup/build.sh": 'configure() { [ "$FAILS" != configure ]; }\nbuild() { [ "$FAILS" != build ]; }\n',
                           "format": '#!/bin/bash\n[ "$FAILS" != format ]\n', "check": (REPO / "tools/check").read_text(encoding="utf-8"),
                           "../tests/reach/check_tests.py": "import os\nraise SystemExit(8 if os.environ['FAILS'] == 'tests' else 0)\n",
                           "../tests/reach/build_times.py": ""}.items():
            path = self.source / "tools" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            path.chmod(0o755)
        for fails, status, told in (("none", 0, True), ("configure", 1, False), ("format", 1, False), ("build", 1, False), ("tests", 8, True)):
            ended = subprocess.run([self.source / "tools/check"], capture_output=True, text=True, check=False,
                                   env=dict(os.environ, FAILS=fails))
            self.assertEqual((ended.returncode, "the check took" in ended.stdout), (status, told), fails + ended.stdout + ended.stderr)


if __name__ == "__main__":
    unittest.main()
