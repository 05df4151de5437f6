"""No folders of runtime/, of tools/, and no parts of tools/commands and tools/lab, include each other, directly or around a corner; of
the toolkit they include public headers only. What puts a program together (main.cpp) may include everybody, since nobody can
include it.
Usage: folder_cycles.py REPO

A circle of folders is one folder: none of them can be read, tested or moved without the others.
"""
import re
import sys
from collections import defaultdict
from pathlib import Path

from source_text import code_lines, report, sources

repo = Path(sys.argv[1])
ROOMS = [repo / "runtime", repo / "tools/commands", repo / "tools/lab", repo / "tools"]
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^/"]+)/[^"]+"')

edges = defaultdict(dict)  # folder -> folder it includes -> where first
problems, told = [], set()
def sources_of(room):
    """Those of the room itself, not of one inside it."""
    inner = [other for other in ROOMS if other != room and other.is_relative_to(room)]
    return [path for path in sources(room)
            if path.name != "main.cpp" and not any(path.is_relative_to(other) for other in inner)]


for room, path in ((room, path) for room in ROOMS for path in sources_of(room)):
    folder = path.relative_to(room).parts[0]
    for number, line in code_lines(path):
        match = INCLUDE.match(line)
        if match and match.group(1) == "toolkit":
            problems.append(f"{path.relative_to(repo)}:{number}: includes a private header of plugins/toolkit")
        if match and match.group(1) != folder and any((other / match.group(1)).is_dir() for other in ROOMS):
            edges[folder].setdefault(match.group(1), f"{path.relative_to(repo)}:{number}")


def path_to(start, goal):
    """The folders on a shortest way of includes, both ends among them; None if there is none."""
    ways = [[start]]
    seen = {start}
    for way in ways:
        if way[-1] == goal:
            return way
        for following in sorted(edges[way[-1]]):
            if following not in seen:
                seen.add(following)
                ways.append(way + [following])
    return None


for folder in sorted(edges):
    for other in sorted(edges[folder]):
        back = path_to(other, folder)
        if back is None or frozenset(back) in told:
            continue
        told.add(frozenset(back))
        circle = [folder] + back
        steps = [f"{edges[a][b]} includes {b}/" for a, b in zip(circle, circle[1:])]
        problems.append(f"{' -> '.join(circle)}\n  " + "\n  ".join(steps))
report(problems, "folders of runtime/ and tools/, and parts of commands, include each other in one direction only")
