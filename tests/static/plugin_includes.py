"""Plugins reach only the SDK, LibTorch, CUDA, kernels/ and their own folder. Usage: plugin_includes.py REPO

A test beside a plugin (x_test.cpp, test_x.h) may also use GoogleTest, what tests/ offers, and internals that a runner of it needs.
"""
import re
import sys
from pathlib import Path

from source_text import code_lines, report, sources

repo = Path(sys.argv[1])
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
LIBRARIES = re.compile(r"^(drivetrain|ATen|c10|torch|caffe2|cuda|cub|thrust|cooperative_groups|kernels|boost/asio|sys|linux|bits|net|netinet|arpa)/")
PLAIN = re.compile(r"^[A-Za-z0-9_]+(\.h)?$")  # <vector>, <fcntl.h>, <cuda_runtime.h>, <nccl.h>


def allowed(path, bracket, name):
    if name == "drivetrain/plan_record.h":  # what others said in `plan` is the runtime's to read
        return is_test(path)
    if bracket == "<":
        ok = LIBRARIES.match(name) or PLAIN.match(name)
        return bool(ok or (is_test(path) and name.startswith(("gtest/", "gmock/"))))
    own = (path.parent / name).resolve()
    plugin = repo.resolve() / Path(*path.relative_to(repo).parts[:3])
    if own.exists():
        return own.is_relative_to(plugin)
    if is_test(path):
        return any((repo / folder / name).exists() for folder in ("tests", "runtime", "kernels", "."))\
            and not name.startswith("plugins/")
    return name.startswith("kernels/") and ".." not in name


def is_test(path):
    return path.stem.endswith("_test") or path.stem.startswith("test_")


problems = []
for path in sources(repo / "plugins"):
    for number, line in code_lines(path):
        match = INCLUDE.match(line)
        if match and not allowed(path, *match.groups()):
            problems.append(f"{path.relative_to(repo)}:{number}: includes {match.group(2)}")
report(problems, "plugins include only <drivetrain/...>, LibTorch, CUDA, kernels/ and their own folder")
