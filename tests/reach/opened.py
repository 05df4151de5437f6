"""What a test opened, from the logs of run_test, held against what it declared."""
from pathlib import Path

from declared import command_files


def paths_of(logs, name):
    """(read, loaded): the files that a test's processes opened to read them, and those that the dynamic linker loaded."""
    found = {b"read": set(), b"loaded": set()}
    for log in _logs_of(logs, name):
        for line in log.read_bytes().splitlines():
            how, _, path = line.partition(b" ")
            found[how].add(Path(path.decode(errors="replace")))
    return found[b"read"], found[b"loaded"]


def drop(logs, name):
    for log in _logs_of(logs, name):
        log.unlink(missing_ok=True)


def _logs_of(logs, name):
    return [log for log in logs.glob(f"{name}.*") if log.name[len(name) + 1:].isdigit()]


class Checker:
    def __init__(self, tree):
        self.tree = tree
        built = [path for folder in ("lib", "bin", "tests/lib") for path in (tree.build / folder).rglob("*")]
        built += [path for path in (tree.build / "tests").rglob("*.so")]
        built += [path for path in (tree.build / "tests").iterdir() if path.stat().st_mode & 0o100]
        # A test may make a file of its own in the build folder: only what was there before it ran counts.
        self.known = set(tree.tracked) | {path.resolve() for path in built if path.is_file()}
        self.known.discard(tree.build / "tests/lib/libdrivetrain_opened.so")  # the one that writes the logs
        self.allowed = {}

    def allowed_by(self, word):
        if word not in self.allowed:
            self.allowed[word] = {path.resolve() for path in self.tree.files_of(word)}
        return self.allowed[word]

    def undeclared(self, test, read, loaded):
        """Files of this tree that the test opened and did not declare."""
        words = set(test["words"])
        words |= self.tree.further_words(words)
        allowed = command_files(self.tree, test["command"])
        for word in words:
            allowed |= self.allowed_by(word)
        for path in list(allowed):
            if path.suffix == ".so" or path.parent == self.tree.build / "bin":
                allowed |= self.tree.needed(path)
        wrong = {path for path in self._ours(loaded) if path not in allowed}
        may_read = allowed | (set(self.tree.plugins) if "manifests" in words else set())
        wrong |= {path for path in self._ours(read) if path not in may_read}
        return sorted(wrong)

    def _ours(self, paths):
        return {self._in_tree(path.resolve()) for path in paths if path.is_absolute()} & self.known

    def _in_tree(self, path):
        """An installed plugin counts as the built one that it is a copy of."""
        installed = path.parent.parts[-3:] == self.tree.plugins_folder.parts[-3:] and path.is_relative_to(self.tree.build / "stage")
        return self.tree.plugins_folder / path.name if installed else path
