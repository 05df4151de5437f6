"""No line of a source is longer than 120 characters, long strings left out. Usage: line_lengths.py REPO"""
import re
import sys
from pathlib import Path

from source_text import report, sources

LIMIT = 120
# JSON of a test is easier to read, and to try by hand, as one line; clang-format breaks no string either.
RAW_STRING = re.compile(r'R"(?P<fence>[^(\s]*)\(.*?\)(?P=fence)"', re.DOTALL)

repo = Path(sys.argv[1])
problems = []
for folder in ("runtime", "plugins", "kernels", "tools", "tests", "examples"):
    for path in sources(repo / folder):
        text = path.read_text(encoding="utf-8", errors="replace")
        raw = set()
        for match in RAW_STRING.finditer(text):
            first = text.count("\n", 0, match.start()) + 1
            raw.update(range(first, first + match.group().count("\n") + 1))
        for number, line in enumerate(text.split("\n"), start=1):
            if len(line) > LIMIT and number not in raw:
                problems.append(f"{path.relative_to(repo)}:{number}: {len(line)} characters")
report(problems, f"at most {LIMIT} characters a line; tools/format wraps code, comments are wrapped by hand")
