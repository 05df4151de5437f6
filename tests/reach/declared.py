"""What tests declare to reach (REACHES in their CMake lines), as files of this checkout and its build folder.

CMake writes BUILD/tests/reach.txt, one test a line: its name, a tab, and the words that it declared, separated by commas:

    program        the built program with its libraries, those of its commands but for bench, and what lies beside it
    bench          the library of `drivetrain bench`
    plugins        every plugin of this tree; KIND_NAME is one of them, with * for any text (data_parallel_*)
    manifests      what plugins say of themselves without being opened; `program` and plugins bring it along
    package        all that `cmake --install` takes but the plugins: a test that opens installed ones declares these
    sources        every file that git knows
    commands       the command's files only: a test that opens nothing else
    FOLDER, FILE   of this checkout or, absolute, of the build folder

The command of a test (its program with the libraries of this tree that it links, its scripts) need not be declared.
"""
import fnmatch
import json
import re
import subprocess
from pathlib import Path

PROGRAM = ["bin/drivetrain", "lib/libdrivetrain.so", "lib/libdrivetrain_kernels.so", "bin/drivetrain-load-libtorch",
           "lib/libdrivetrain_cuda.so", "lib/libdrivetrain_kernels_cuda.so"]
PACKAGE_SOURCES = ["runtime/api", "plugins/toolkit/api", "kernels", "tests/conformance", "tools/cmake", "tools/templates",
                   "configs/hardware", "configs/published", "LICENSE"]
PACKAGE_BUILT = ["lib/libdrivetrain_toolkit.a", "lib/libdrivetrain_testkit.a", "bin/drivetrain-conformance", "include/drivetrain/api_digest.h",
                 "installed/headers.sha256"]


class Undeclared(Exception):
    """A test without REACHES, or a word that names nothing."""


class Tree:
    """A checkout, its build folder, and the files of both that tests can depend on."""

    def __init__(self, source, build):
        self.source, self.build = Path(source).resolve(), Path(build).resolve()
        self.plugins_folder = self.build / "lib/drivetrain/plugins"
        self.plugins = sorted(self.plugins_folder.glob("*.so"))
        self.tracked = sorted(self._git_files())
        self.tracked_set = set(self.tracked)
        self._needed = {}

    def _git_files(self):
        """Files that git knows or would take; those of a checkout without git, as unpacked archives are."""
        listed = subprocess.run(["git", "-C", str(self.source), "ls-files", "-co", "--exclude-standard", "-z"],
                                capture_output=True, check=False)
        if listed.returncode == 0:
            names = [name for name in listed.stdout.decode().split("\0") if name]
        else:
            names = [str(path.relative_to(self.source)) for path in self.source.rglob("*")
                     if "build" not in path.relative_to(self.source).parts]
        return {self.source / name for name in names if (self.source / name).is_file()}

    def under(self, place):
        """The files of a declared folder or file, or None if nothing is there."""
        path = (self.source / place) if not Path(place).is_absolute() else Path(place)
        if path.is_relative_to(self.build):
            if path.is_dir():
                return sorted(file for file in path.rglob("*") if file.is_file())
            return [path] if path.is_file() else None
        found = [file for file in self.tracked if file == path or path in file.parents]
        return found or None

    def needed(self, program):
        """The libraries of this build that a program or library links, and those that they link."""
        if program not in self._needed:
            self._needed[program] = set()  # libraries that need each other
            dynamic = subprocess.run(["readelf", "-dW", str(program)], capture_output=True, text=True, check=False).stdout
            folders = [self.build / "tests/lib"] if program.is_relative_to(self.build / "tests") else []
            found = set()
            for name in re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic):
                for folder in [*folders, self.build / "lib"]:
                    if (folder / name).exists():
                        library = (folder / name).resolve()
                        found |= {library} | self.needed(library)
                        break
            self._needed[program] = found
        return self._needed[program]

    def manifest_files(self):
        generated = list((self.build / "plugins").glob("*/*/*_manifest.cpp"))
        return sorted(generated) + [self.build / "include/drivetrain/api_digest.h"]

    def files_of(self, word):
        """The files that one declared word stands for."""
        if word == "commands":
            return []
        if word == "manifests":
            return self.manifest_files()
        if word == "program":
            commands = [path for path in sorted((self.build / "lib/drivetrain/commands").glob("*.so")) if path.stem != "bench"]
            return [self.build / name for name in PROGRAM if (self.build / name).exists()] + commands
        if word == "bench":
            return [self.build / "lib/drivetrain/commands/bench.so"]
        if word == "sources":
            return self.tracked
        if word == "package":
            sources = [file for place in PACKAGE_SOURCES for file in self.under(place) or []]
            return sources + [self.build / name for name in PACKAGE_BUILT if (self.build / name).exists()]
        if word == "plugins":
            return self.plugins
        if "/" not in word:
            plugins = [plugin for plugin in self.plugins if fnmatch.fnmatch(plugin.stem, word)]
            if plugins:
                return plugins
        files = self.under(word)
        if files is None:
            raise Undeclared(f'REACHES has "{word}", which is no word of tests/reach/declared.py, no plugin of this build '
                             "(KIND_NAME) and no file or folder of the checkout. Correct the CMake line of the test.")
        return files

    def further_words(self, words):
        """What declared words bring along."""
        more = set()
        if "package" in words:
            more |= {"program", "bench"}
        if {"program", "plugins", "package"} & (set(words) | more) or any(self._is_plugin(word) for word in words):
            more.add("manifests")
        return more - set(words)

    def _is_plugin(self, word):
        return "/" not in word and any(fnmatch.fnmatch(plugin.stem, word) for plugin in self.plugins)


def command_files(tree, command):
    """The files of the checkout and the build that a command names, with the libraries that its programs link."""
    files = set()
    for word in command:
        for text in re.split(r"[\s=;'\"]+", word):
            path = Path(text)
            if path.is_absolute() and path.is_file() and (path.is_relative_to(tree.build) or path.resolve() in tree.tracked_set):
                path = path.resolve()
                files.add(path)
                if path.is_relative_to(tree.build):
                    files |= tree.needed(path)
    return files


def tests_of(build):
    """Every test of CTest in a build folder: name -> its command, its properties and, from reach.txt, its words."""
    shown = subprocess.run(["ctest", "--test-dir", str(build), "--show-only=json-v1"], capture_output=True, text=True,
                           check=True).stdout
    reach = {}
    for line in (Path(build) / "tests/reach.txt").read_text(encoding="utf-8").splitlines():
        name, _, words = line.partition("\t")
        reach[name] = [word for word in words.split(",") if word]
    tests = {}
    for number, row in enumerate(json.loads(shown)["tests"], start=1):
        properties = {entry["name"]: entry["value"] for entry in row.get("properties", [])}
        tests[row["name"]] = {"number": number, "command": row.get("command", []), "properties": properties,
                              "words": reach.get(row["name"], [])}
    without = [name for name, test in tests.items() if not test["words"]]
    if without:
        raise Undeclared("these tests do not declare what they reach: " + ", ".join(sorted(without)) +
                         ". Add REACHES to their CMake lines (tools/cmake/DrivetrainTest.cmake); `REACHES commands` says that "
                         "a test opens nothing but its own command.")
    return tests
