"""Everything in tests/golden/data has a program that makes it. Usage: golden_makers.py REPO"""
import sys
from pathlib import Path

from source_text import report

repo = Path(sys.argv[1])
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "golden/make"))
from make import NAMES  # noqa: E402  needs nothing but Python's own library

data = {path.name for path in (repo / "tests/golden/data").iterdir()} - {"README.md"}
made = {place.rstrip("/") for place in NAMES.values()}
problems = [f"tests/golden/data/{name}: no program makes it" for name in sorted(data - made)]
problems += [f"tests/golden/make/make.py: {name} is not in tests/golden/data" for name in sorted(made - data)]
report(problems, "golden data without the program that makes it cannot be judged or made again")
