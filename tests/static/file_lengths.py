"""Lists sources of more than 300 lines; one over 500 must say why in its first comment. Usage: file_lengths.py REPO"""
import re
import sys
from pathlib import Path

from source_text import report, sources

repo = Path(sys.argv[1])
problems = []
for folder in ("runtime", "plugins", "kernels", "tools", "tests", "examples"):
    for path in sources(repo / folder):
        text = path.read_text(encoding="utf-8", errors="replace")
        lines = text.count("\n")
        if lines > 300:
            print(f"{path.relative_to(repo)}: {lines} lines (two ideas in one file?)")
        first_comment = re.match(r"(?:\s*//[^\n]*\n)*", text).group()
        if lines > 500 and "lines because" not in " ".join(first_comment.replace("//", " ").split()):
            problems.append(f"{path.relative_to(repo)}: {lines} lines, and no '... lines because ...' in its first comment")
report(problems, "files over 300 lines are listed, over 500 give a reason")
