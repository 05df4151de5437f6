"""Stamps of tests that passed: what they reached then. A test whose stamp still fits need not run again.

BUILD/tests/stamps/NAME holds one digest for each word that the test declares, for its command and for the machine. Digests
are of contents: a library that was linked again and came out the same changes nothing.
"""
import hashlib
import json
import platform
import subprocess

from declared import Undeclared, command_files

NOT_PART = {"COST", "LABELS", "PROCESSORS", "TIMEOUT", "WORKING_DIRECTORY"}


def machine_facts(torch):
    """What else a test's outcome rests on, in words: compiler, LibTorch, processor, Python."""
    def first_line(command):
        shown = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        return shown.splitlines()[0] if shown else "none"
    processor = "unknown"
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("model name"):
                processor = line.split(":", 1)[1].strip()
                break
    return {"compiler": first_line(["g++", "--version"]), "LibTorch": torch, "processor": processor,
            "Python": platform.python_version(), "kernel": platform.release()}


class Digests:
    """SHA-256 of files, remembered in BUILD/tests/digests.json by size and time of change."""

    def __init__(self, tree):
        self.tree = tree
        self.place = tree.build / "tests/digests.json"
        try:
            self.known = json.loads(self.place.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            self.known = {}
        self.words = {}

    def of_file(self, path):
        status = path.stat()
        key = str(path)
        seen = [status.st_size, status.st_mtime_ns]
        row = self.known.get(key)
        if row is None or row[0] != seen:
            with open(path, "rb") as file:
                row = [seen, hashlib.file_digest(file, "sha256").hexdigest()]
            self.known[key] = row
        return row[1]

    def of_files(self, files):
        text = "".join(f"{path} {self.of_file(path)}\n" for path in sorted(files))
        return hashlib.sha256(text.encode()).hexdigest()

    def of_word(self, word):
        if word not in self.words:
            files = set(self.tree.files_of(word))
            for path in list(files):
                if path.suffix == ".so":  # with the libraries that it brings
                    files |= self.tree.needed(path)
            self.words[word] = self.of_files(files)
        return self.words[word]

    def of_test(self, name, test, facts):
        """What a test reaches: word -> digest."""
        command = json.dumps([test["command"], {key: value for key, value in test["properties"].items() if key not in NOT_PART}])
        reached = {f"another {name}": value for name, value in facts.items()}
        reached["its command"] = hashlib.sha256(command.encode()).hexdigest()
        reached["its program"] = self.of_files(command_files(self.tree, test["command"]))
        words = set(test["words"])
        for word in words | self.tree.further_words(words):
            try:
                reached[word] = self.of_word(word)
            except Undeclared as error:
                raise Undeclared(f"{name}: {error}") from None
        return reached

    def save(self):
        self.place.write_text(json.dumps(self.known), encoding="utf-8")


class Stamps:
    def __init__(self, build):
        self.folder = build / "tests/stamps"
        self.folder.mkdir(parents=True, exist_ok=True)

    def changed(self, name, reached):
        """Why a test has to run: what differs from when it last passed, in words."""
        try:
            before = json.loads((self.folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return ["no pass on record"]
        changed = sorted(word for word in set(before) | set(reached) if before.get(word) != reached.get(word))
        return [f"{word} than they passed with: {before.get(word)}, now {reached.get(word)}" if word.startswith("another ") else word
                for word in changed]

    def write(self, name, reached):
        part = self.folder / (name + ".part")
        part.write_text(json.dumps(reached), encoding="utf-8")
        part.rename(self.folder / name)

    def drop(self, name):
        (self.folder / name).unlink(missing_ok=True)


def add_setups(tests, reached):
    """A test that needs a fixture reaches what the tests reach that set it up."""
    makers = {}
    for name, test in tests.items():
        for fixture in test["properties"].get("FIXTURES_SETUP", []):
            makers.setdefault(fixture, []).append(name)

    def add(name, fixtures):
        for fixture in fixtures:
            for maker in makers.get(fixture, []):
                for word, digest in reached[maker].items():
                    reached[name].setdefault(word if word not in ("its command", "its program") else f"{word} ({maker})", digest)
                add(name, tests[maker]["properties"].get("FIXTURES_REQUIRED", []))

    for name, test in tests.items():
        add(name, test["properties"].get("FIXTURES_REQUIRED", []))
