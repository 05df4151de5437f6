"""No implementation is named in runtime/ outside comments. Usage: strategy_words.py REPO"""
import re
import sys
from pathlib import Path

from source_text import code_lines, report, sources

repo = Path(sys.argv[1])
kept = Path(__file__).with_name("strategy_words.txt").read_text().splitlines()
words = [word for line in kept if not line.startswith("#") for word in line.split()]
pattern = re.compile(r"(?<![A-Za-z0-9_])(?:" + "|".join(words) + r")(?![A-Za-z0-9_])", re.IGNORECASE)

problems = [f"{path.relative_to(repo)}:{number}: names '{match.group()}'"
            for path in sources(repo / "runtime")
            for number, line in code_lines(path)
            for match in pattern.finditer(line)]
report(problems, "runtime/ knows kinds, never implementations (tests/static/strategy_words.txt)")
