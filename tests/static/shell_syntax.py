"""Every shell script of the tree parses. Usage: shell_syntax.py REPO"""
import subprocess
import sys
from pathlib import Path

from source_text import report

repo = Path(sys.argv[1])


def is_script(path):
    if path.suffix == ".sh":
        return True
    with path.open("rb") as file:
        return file.read(64).startswith((b"#!/usr/bin/env bash", b"#!/bin/bash", b"#!/bin/sh"))


candidates = [p for folder in ("tools", "tests", "examples", ".ci") for p in sorted((repo / folder).rglob("*"))]
problems = []
for path in candidates:
    if path.is_file() and is_script(path):
        result = subprocess.run(["bash", "-n", path], capture_output=True, text=True)
        if result.returncode:
            problems.append(result.stderr.strip())
report(problems, "shell scripts parse (bash -n)")
