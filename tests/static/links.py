"""Every relative link of a Markdown file leads to a file, and to a heading of it where it names one. Usage: links.py REPO"""
import re
import sys
from pathlib import Path

from source_text import report

repo = Path(sys.argv[1])
problems = []


def prose(path):
    """The text of a file without its blocks of code, whose lines stay as empty ones."""
    return re.sub(r"^```.*?^```", lambda block: "\n" * block.group().count("\n"), path.read_text(), flags=re.DOTALL | re.MULTILINE)


def anchors(path):
    """The names by which GitHub knows the headings of a file."""
    headings = re.findall(r"^#+ (.*)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


folders = [top for top in repo.iterdir() if top.is_dir() and top.name not in ("build", "runs") and not top.name.startswith(".")]
for path in sorted([*repo.glob("*.md"), *(path for top in folders for path in top.rglob("*.md"))]):
    if "templates" in path.parts:  # their links are right in what is made of them
        continue
    for number, line in enumerate(prose(path).split("\n"), start=1):
        for target in re.findall(r"\]\(([^)\s]+)\)", line):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, heading = target.partition("#")
            place = path.parent / name if name else path
            if not place.exists():
                problems.append(f"{path.relative_to(repo)}:{number}: {name} is not there")
            elif heading and heading not in anchors(place):
                problems.append(f"{path.relative_to(repo)}:{number}: {name or 'this page'} has no heading {heading}")
report(problems, "links in Markdown lead somewhere")
