"""What the static checks share: finding sources and taking the comments out of them. Python 3 standard library only."""
import re
import sys
from pathlib import Path

SOURCE_ENDINGS = {".h", ".hpp", ".cpp", ".cc", ".cu", ".cuh"}

# A comment, or a string or character literal, in which nothing is a comment. Digit separators (500'000) are not literals.
_TOKENS = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<fence>[^(\s]*)\(.*?\)(?P=fence)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'',
    re.DOTALL)


def without_comments(text):
    """The same text with comments blanked out; lines keep their numbers, literals stay."""
    def blank(match):
        token = match.group()
        return re.sub(r"[^\n]", " ", token) if token.startswith(("//", "/*")) else token
    return _TOKENS.sub(blank, text)


def sources(folder):
    """Every C++ and CUDA source below folder, sorted. A folder that is not there has none."""
    return sorted(p for p in Path(folder).rglob("*") if p.suffix in SOURCE_ENDINGS and p.is_file())


def code_lines(path):
    """(line number, line without comments) of a file."""
    text = path.read_text(encoding="utf-8", errors="replace")
    return enumerate(without_comments(text).split("\n"), start=1)


def report(problems, rule):
    """Prints the problems and ends the check: 0 if there are none."""
    for problem in problems:
        print(problem)
    if problems:
        print(f"{len(problems)} problem(s). The rule: {rule}")
    sys.exit(1 if problems else 0)
