"""What a check needs of the machine: programs run with a limit and a log, tests of GoogleTest, whole small runs."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor


class Missing(Exception):
    """Something to run that is not there."""


class Failed(Exception):
    """A check that ran and did not pass; its text goes into the table."""


class NotRun(Exception):
    """A check that this machine cannot run; its text says what it needs."""


class OutOfTime(Exception):
    """The call's time is over before the check is; it is begun again in the next call."""


def words_of(output):
    """The first and the last line of an error: what came first is the cause, what came last may say more."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if not lines:
        return "no word"
    first, last = lines[0][:160], lines[-1][:160]
    return first if first == last else f"{first} ... {last}"


class Machine:
    """This machine and the tree under test. Any thread."""

    def __init__(self, tree, logs, python, dry, deadline):
        self.tree, self.logs, self.python, self.dry, self.deadline = tree.resolve(), logs, python, dry, deadline
        self.program = self.tree / "bin/drivetrain"
        self.torch = self.find_torch()
        self.environment = dict(os.environ, NO_COLOR="1")
        if self.torch:
            folders = [self.torch / "lib", *sorted(self.torch.parent.glob("nvidia/*/lib"))]
            # Test programs find LibTorch through this; their RPATH names the folder of the build.
            before = os.environ.get("LD_LIBRARY_PATH")
            self.environment.update(DRIVETRAIN_TORCH=str(self.torch),
                                    LD_LIBRARY_PATH=":".join([str(f) for f in folders] + ([before] if before else [])))
        if self.dry:
            self.environment["CUDA_VISIBLE_DEVICES"] = ""
        self.gpus = self.find_gpus()
        self.gpu = self.gpus[0] if self.gpus else ""
        self.running, self.lock, self.stopped = set(), threading.Lock(), False

    def find_torch(self):
        if os.environ.get("DRIVETRAIN_TORCH"):
            return pathlib.Path(os.environ["DRIVETRAIN_TORCH"])
        code = "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
        said = subprocess.run([self.python, "-c", code], capture_output=True, text=True).stdout.strip()
        return pathlib.Path(said) if said else None  # none: the program's own, where this machine has it

    @staticmethod
    def find_gpus():
        try:
            said = subprocess.run(["nvidia-smi", "--query-gpu=name,memory.total,driver_version,compute_cap", "--format=csv,noheader"],
                                  capture_output=True, text=True, timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            return []
        return said.stdout.splitlines() if said.returncode == 0 else []

    def arch(self):
        """89 for compute capability 8.9; 0 without a GPU."""
        found = re.search(r"(\d+)\.(\d+)\s*$", self.gpu)
        return int(found.group(1)) * 10 + int(found.group(2)) if found else 0

    def wants(self, arch):
        """`arch`: the oldest GPU that can do it, or it and the newest."""
        oldest, newest = arch if isinstance(arch, tuple) else (arch, 1000)
        if self.arch() > 0 and not oldest <= self.arch() <= newest:
            raise NotRun(f"needs sm_{oldest}{' alone' if newest == oldest else ''}, and this is sm_{self.arch()}")

    @contextlib.contextmanager
    def within(self, seconds):
        """What runs in here ends after so many seconds, if the call does not end before."""
        before, self.deadline = self.deadline, min(self.deadline, time.monotonic() + seconds)
        try:
            yield
        finally:
            self.deadline = before

    def left(self):
        return self.deadline - time.monotonic()

    def run(self, name, command, timeout, environment=None, during=None):
        """(exit code, stdout, stderr), also in the log of that name. The whole process group ends with its limit. `during` is
        called with the process, on a thread of its own."""
        command = [str(word) for word in command]
        log = self.logs / (re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")[:120] + ".log")
        limit = min(timeout, self.left())
        if limit <= 0 or self.stopped:
            raise OutOfTime()
        env = dict(self.environment, **(environment or {}))
        try:
            process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                                       cwd=self.logs, start_new_session=True)
        except OSError as e:
            raise Failed(f"does not start: {e}") from None
        with self.lock:
            self.running.add(process)
        late = False
        if during:
            threading.Thread(target=during, args=(process,), daemon=True).start()
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            late = True
            self.end(process)
            out, err = process.communicate()
        finally:
            with self.lock:
                self.running.discard(process)
        log.write_text(f"{' '.join(command)}\n{out}\n{err}")
        if self.stopped or (late and limit < timeout):
            raise OutOfTime()
        if late:
            raise Failed(f"no end within {timeout} s; {words_of(err + out)}")
        return process.returncode, out, err

    def output(self, name, command, timeout, environment=None):
        """Its stdout; Failed with the words of a program that fails, or that ends right and has left a group open."""
        code, out, err = self.run(name, command, timeout, environment)
        if code:
            raise Failed(f"exit {code}: {words_of(err + chr(10) + out)}")
        left_open = re.search(r".*was left open.*", out + err)
        if left_open:
            raise Failed(left_open.group(0).strip())
        return out

    def answer(self, name, command, timeout):
        """The JSON that a program prints."""
        out = self.output(name, command, timeout)
        try:
            return json.loads(out)
        except ValueError:
            raise Failed(f"printed no JSON: {words_of(out)}") from None

    @staticmethod
    def end(process):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def stop(self):
        """Ends all that runs, and starts nothing any more."""
        self.stopped = True
        with self.lock:
            for process in self.running:
                self.end(process)

    def there(self, path, executable=False):
        if not path.is_file():
            raise Missing(f"{path} is not there")
        if executable and not os.access(path, os.X_OK):
            raise Missing(f"{path} is no program")
        return path


def gtest_figures(output, dry):
    passed = sum(map(int, re.findall(r"\[  PASSED  \] (\d+) test", output)))
    skipped = sum(map(int, re.findall(r"\[  SKIPPED \] (\d+) test", output)))
    reason = re.search(r": Skipped\n(.*)", output)
    reason = reason.group(1)[:150] if reason else "no reason given"
    if passed or dry:
        return f"{passed} passed" + (f", {skipped} not run: {reason}" if skipped else "")
    if re.search(r"GPUs|need a GPU each", reason):
        raise NotRun(reason)
    raise Failed(f"nothing was tested: {reason}")


def tests_of(machine, program):
    names, suite = [], ""
    for line in machine.output(f"{program.name} list", [program, "--gtest_list_tests"], 60).splitlines():
        word = line.split("#")[0].rstrip()
        if word and not word.startswith(" "):
            suite = word.strip()
        elif word.strip() and suite.endswith("."):
            names.append(suite + word.strip())
    return names


def run_test(machine, program, test, timeout):
    """(what failed or None, why it was skipped or None) of one test in a process of its own."""
    try:
        code, out, err = machine.run(f"{program.name} {test}", [program, f"--gtest_filter={test}"], timeout)
    except Failed as e:
        return f"{test}: {e}", None
    if code:
        said = re.search(r"Failure\n((?:.+\n){1,4})", out)
        return f"{test}: exit {code}: {words_of((said.group(1) if said else out) + err)}", None
    reason = re.search(r": Skipped\n(.*)", out)
    return None, reason.group(1)[:150] if reason else None


def run_gtest(machine, program, timeout, apart=False):
    """All tests in one process; after a failure, or with `apart`, each in its own, four side by side: an illegal address on the
    device fails every later test of its process."""
    machine.there(program, executable=True)
    if not apart:
        code, out, err = machine.run(program.name, [program], timeout)
        if code == 0:
            return gtest_figures(out, machine.dry)
    with ThreadPoolExecutor(max_workers=4) as pool:
        became = list(pool.map(lambda test: run_test(machine, program, test, timeout), tests_of(machine, program)))
    failed, skipped = [f for f, _ in became if f], [s for f, s in became if s]
    passed = len(became) - len(failed) - len(skipped)
    if failed:
        raise Failed(f"{len(failed)} of {len(became)} tests, each in a process of its own: {'; '.join(failed)[:900]}")
    if not passed and not machine.dry:
        reason = next(iter(skipped), "no reason given")
        if re.search(r"GPUs|need a GPU each", reason):
            raise NotRun(reason)
        raise Failed(f"nothing was tested: {reason}")
    return f"{passed} passed" + (f", some not run: {skipped[0]}" if skipped else "")


def merged(config, more):
    """`more` over `config`, objects key by key."""
    result = dict(config)
    for key, value in more.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result


def files_of(machine, name):
    """(folder, config file) of the run of that name."""
    folder = machine.logs / re.sub(r"[^A-Za-z0-9]+", "_", "train " + name)
    return folder, folder.with_suffix(".json")


def write_config(machine, name, config):
    """(folder, config file), written, of the run of that name."""
    folder, file = files_of(machine, name)
    file.write_text(json.dumps(dict(config, output_dir=str(folder))))
    return folder, file


def processes_with(entry):
    """Processes of this user that have this `NAME=VALUE` in their environment."""
    found = []
    for process in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # it has ended meanwhile, or is another user's
            if process.name.isdigit() and entry.encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return sorted(found)


def sane(losses):
    """The same; a loss that is no number is null in the program's JSON."""
    if not all(loss is not None and 0 < loss < 100 for loss in losses):
        raise Failed(f"losses {losses}")
    return losses


def read_losses(folder):
    return sane([json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()])


def start_of(machine, ranks):
    return [machine.program, "train"] if ranks == 1 else [machine.program, "launch", "-n", ranks]


def losses_of(machine, name, config, timeout, ranks=1, wrap=(), environment=None):
    folder, file = write_config(machine, name, config)
    shutil.rmtree(folder, ignore_errors=True)
    machine.output(f"train {name}", [*wrap, *start_of(machine, ranks), file], timeout, environment)
    return read_losses(folder)


