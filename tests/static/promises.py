"""Every sentence that a conformance case quotes stands in the header that it names. Usage: promises.py REPO

tests/conformance/KIND/promises.txt has a line per case: CASE | HEADER | SENTENCE."""
import re
import sys
from pathlib import Path

from source_text import report

repo = Path(sys.argv[1])


def words_of(header):
    """The header without its comment marks and line breaks."""
    text = re.sub(r"^\s*//", "", header.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return " ".join(re.sub(r"(?<!:)//", " ", text).split())


problems = []
lists = sorted((repo / "tests/conformance").glob("*/promises.txt"))
for path in lists:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        where = f"{path.relative_to(repo)}:{number}"
        parts = line.split(" | ")
        if len(parts) != 3:
            problems.append(f"{where}: wanted CASE | HEADER | SENTENCE")
            continue
        header = repo / "runtime/api/drivetrain" / parts[1]
        if not header.is_file():
            problems.append(f"{where}: there is no contract header {parts[1]}")
        elif " ".join(parts[2].split()) not in words_of(header):
            problems.append(f"{where}: {parts[1]} does not say \"{parts[2]}\"")
if not lists:
    problems.append("tests/conformance has no promises.txt")
report(problems, "cases of the suites quote the contract's headers")
