"""A test that looks at a clock, or sleeps, says why. Usage: noise_words.py REPO

What a slow machine changes may not decide a test. So tests wait for what they are about, by tests/support/waiting.h and waiting.py,
which are the places where these words stand. Anywhere else a word is followed, or preceded by a line of its own, by a comment
`// Waits: reason` (`# Waits: reason`)."""
import re
import sys
from pathlib import Path

from source_text import report, sources, without_comments

SHELL = r"\bsleep (?=[\d.$]|infinity)|/sleep\b"  # in scripts that tests start
WORDS = {
    ".py": re.compile(rf"\btime\.(?:sleep|time|time_ns|monotonic|perf_counter)\b|\blet_pass[ (]|\belapsed|{SHELL}"),
    "": re.compile(rf"\bsleep_(?:for|until)\b|\b(?:u|nano)?sleep\(|\w+_clock\b|\bClock::now\b|\bclock_gettime\b|\belapsed|\bseconds <"
                   rf"|\.wait_(?:for|until)\(|EXPECT_L[TE]\((?:\w+\.)?seconds\b|\blet_pass[ (]|{SHELL}"),
}
REASON = re.compile(r"(?://|#) Waits: \S")
REASON_ABOVE = re.compile(r"^\s*(?://|#) Waits: \S")


def is_test(path, repo):
    first, *folders = path.relative_to(repo).parts
    if first == "tests":
        return folders[0] != "static"  # whose lists and examples are such words
    return path.stem.endswith("_test") or path.stem.startswith("test_") or any(f.startswith(("on_", "under_")) for f in folders[:-1])


repo = Path(sys.argv[1])
files = [path for folder in ("runtime", "plugins", "kernels", "tools", "tests", "examples") for path in sources(repo / folder)]
files += sorted((repo / "tests").rglob("*.py"))
problems = []
for path in files:
    if not is_test(path, repo):
        continue
    text = path.read_text(encoding="utf-8", errors="replace")
    words = WORDS.get(path.suffix, WORDS[""])
    code = text if path.suffix == ".py" else without_comments(text)
    lines = text.split("\n")
    for number, line in enumerate(code.split("\n")):
        match = words.search(line)
        if match and not REASON.search(lines[number]) and not (number > 0 and REASON_ABOVE.search(lines[number - 1])):
            problems.append(f"{path.relative_to(repo)}:{number + 1}: says '{match.group().strip()}' without a reason")
report(problems, "tests wait for events (tests/support/waiting.h, waiting.py); who needs a time says why: // Waits: reason")
