"""Public headers mention no library that an author of plugins need not have. Usage: public_headers.py REPO

Every contract header names itself with DRIVETRAIN_CONTRACT, which a plugin's list of headers is made of. That each
header compiles alone is checked by the target headers_alone, which reads the standard library and LibTorch in advance:
that a header includes what it names of those, itself or through other public headers, is checked here.
"""
import re
import sys
from pathlib import Path

from source_text import code_lines, report, sources

repo = Path(sys.argv[1])
HIDDEN = re.compile(r"(?<![A-Za-z0-9_])(boost|rapidjson|tbb|oneapi|spdlog|fmt)(?=(::|/|\.h))|\b(BOOST|RAPIDJSON|SPDLOG)_",
                    re.IGNORECASE)
WHOLE = re.compile(r"#\s*include\s*<(torch/(torch|all|extension)\.h|ATen/ATen\.h)>")

STANDARD = {  # what a header may get from which others: each of them brings it by the standard or in practice of all
    "array": "array", "atomic": "atomic", "condition_variable": "condition_variable", "deque": "deque",
    "exception_ptr": "exception", "function": "functional", "future": "future", "promise": "future", "map": "map",
    "unordered_map": "unordered_map", "set": "set", "shared_ptr": "memory", "unique_ptr": "memory", "weak_ptr": "memory",
    "make_shared": "memory", "make_unique": "memory", "mutex": "mutex", "lock_guard": "mutex", "optional": "optional",
    "span": "span", "string": "string", "to_string": "string", "string_view": "string_view string", "thread": "thread",
    "tuple": "tuple", "pair": "utility map unordered_map vector", "move": "utility", "variant": "variant",
    "vector": "vector", "ostringstream": "sstream", "sort": "algorithm", "any_of": "algorithm", "all_of": "algorithm",
}
INCLUDE = re.compile(r"#\s*include\s*<([^>]+)>")


def includes_of(path, known, seen):
    """What a public header includes, its public headers followed."""
    found = set()
    for name in INCLUDE.findall(path.read_text(encoding="utf-8")):
        found.add(name)
        if name in known and name not in seen:
            seen.add(name)
            found |= includes_of(known[name], known, seen)
    return found


def missing_includes(path, known):
    found = includes_of(path, known, set())
    text = "\n".join(line for _, line in code_lines(path))
    if any(name.startswith(("ATen/", "c10/")) for name in found):
        return  # which bring nearly all of the standard library
    if re.search(r"\b(at|c10)::", text):
        yield "names LibTorch and includes none of it"
    for name in sorted(set(re.findall(r"\bstd::(\w+)", text))):
        if name in STANDARD and not set(STANDARD[name].split()) & found:
            yield f"names std::{name} and does not include <{STANDARD[name].split()[0]}>"
    if re.search(r"\bu?int(8|16|32|64)_t\b", text) and "cstdint" not in found:
        yield "names integers of a size and does not include <cstdint>"


problems = []
contract = sources(repo / "runtime" / "api")
for path in contract:
    if path.stem != "export" and f"\nDRIVETRAIN_CONTRACT({path.stem})\n" not in path.read_text(encoding="utf-8"):
        problems.append(f"{path.relative_to(repo)}: lacks the line DRIVETRAIN_CONTRACT({path.stem})")
for path in contract + sources(repo / "plugins" / "toolkit" / "api"):
    for number, line in code_lines(path):
        for match in list(HIDDEN.finditer(line)) + list(WHOLE.finditer(line)):
            problems.append(f"{path.relative_to(repo)}:{number}: mentions {match.group().strip()}")
roots = [repo / "runtime" / "api", repo / "plugins" / "toolkit" / "api"]
known = {str(path.relative_to(root)): path for root in roots for path in sources(root)}
for path in known.values():
    problems += [f"{path.relative_to(repo)}: {problem}" for problem in missing_includes(path, known)]
report(problems, "SDK headers show no Boost, RapidJSON, TBB or spdlog, and no header of all of LibTorch")
