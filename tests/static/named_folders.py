"""Kinds and folders have one set of names. Usage: named_folders.py REPO

The table in runtime/*/kinds.cpp, the folders of plugins/, of templates and of suites, and the table of runtime/api/README.md
name the same kinds. A README that counts kinds has their number. A README with a table of folders names every folder beside
it, and none that is not there.
"""
import re
import sys
from pathlib import Path

from source_text import report

repo = Path(sys.argv[1])
problems = []
NUMBERS = {word: number for number, word in enumerate(
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen "
    "twenty".split(), start=1)}
# README, and the first cell of the heading of its table.
TABLES = {"README.md": "folder", "runtime/README.md": "folder", "tools/README.md": "path", "tests/README.md": "folder",
          "examples/README.md": "folder"}
COUNTED = ["README.md", "CONTRIBUTING.md", "CONTRACT.md", "plugins/README.md", "examples/README.md", "runtime/README.md",
           "runtime/api/README.md", "runtime/plugin/kinds.h", "tools/README.md"]


def folders(place, apart=()):
    """The folders in one that hold anything but what programs leave behind."""
    left = ("build", "runs", "__pycache__", *apart)
    return {path.name for path in (repo / place).iterdir()
            if path.is_dir() and not path.name.startswith(".") and path.name not in left and any(path.iterdir())}


def first_cells(text, heading):
    """The first cells of the rows of the tables whose heading begins with this word; of all tables for the empty one."""
    inside = False
    for before, line in zip([""] + text.split("\n"), text.split("\n")):
        cell = line.split("|")[1].strip() if line.startswith("|") else ""
        if cell and not before.startswith("|"):
            inside = cell == heading
        elif inside and cell.strip("-"):
            yield cell


def compare(found, wanted, where):
    """Both sets of names are the same, or the place says which are not."""
    problems.extend(f"{where}: does not have '{name}'" for name in sorted(wanted - found))
    problems.extend(f"{where}: has '{name}', which is none" for name in sorted(found - wanted))


kinds = set()
for table in sorted(repo.glob("runtime/*/kinds.cpp")):
    kinds |= set(re.findall(r'^\s*\{"(\w+)", KindRule::', table.read_text(), re.MULTILINE))
if not kinds:
    problems.append("runtime/*/kinds.cpp: no table of kinds is found; mend this check")
for place, apart in {"plugins": ["toolkit"], "tools/templates": ["common"], "tests/conformance": ["kit"]}.items():
    if (repo / place).is_dir():
        compare(folders(place, apart), kinds, place)
if (repo / "runtime/api/README.md").exists():
    cells = first_cells((repo / "runtime/api/README.md").read_text(), "kind")
    compare({name for cell in cells for name in re.findall(r"`(\w+)`", cell)}, kinds, "runtime/api/README.md")
for name in COUNTED:
    text = (repo / name).read_text() if (repo / name).exists() else ""
    for number, line in enumerate(text.split("\n"), start=1):
        for count in re.findall(r"\b(\w+) kinds\b", line):
            count = NUMBERS.get(count.lower(), int(count) if count.isdigit() else 0)
            if count and "plugin" in line and count != len(kinds):
                problems.append(f"{name}:{number}: says {count} kinds; there are {len(kinds)}")

for name, heading in TABLES.items():
    if not (repo / name).exists():
        continue
    there = folders(Path(name).parent)
    quoted = [word for cell in first_cells((repo / name).read_text(), heading) for word in re.findall(r"`([^`]+)`", cell)]
    if not quoted:
        problems.append(f"{name}: has no table of folders that begins with '{heading}'")
    said = {word.split("/")[0] for word in quoted if "/" in word or word in there}
    compare(said, there, name)
report(problems, "kinds and folders have the same names in code, READMEs and on the disk")
