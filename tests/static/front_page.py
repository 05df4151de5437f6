"""README.md is read in three minutes, and its figures are those of the page of figures. Usage: front_page.py REPO"""
import sys
from pathlib import Path

from source_text import report

LINES, WORDS = 150, 1100  # words as `wc -w` counts them
repo = Path(sys.argv[1])
problems = []
text = (repo / "README.md").read_text()
if text.count("\n") > LINES:
    problems.append(f"README.md: {text.count(chr(10))} lines, more than {LINES}: move a part into the README of its folder")
if len(text.split()) > WORDS:
    problems.append(f"README.md: {len(text.split())} words, more than {WORDS}: move a part into the README of its folder")

figures = (repo / "tools/bench/FIGURES.md").read_text().split("\n")
section = f"\n{text}".partition("\n## How fast\n")[2].partition("\n## ")[0]
rows = [line for line in section.split("\n") if line.startswith("| ") and not line.startswith("| ---")][1:]
if not rows:
    problems.append("README.md: has no table under '## How fast'")
problems += [f"tools/bench/FIGURES.md: does not have this row of README.md: {row}" for row in rows if row not in figures]
report(problems, f"README.md has at most {LINES} lines and {WORDS} words, and rows of tools/bench/FIGURES.md")
