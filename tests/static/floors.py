"""Who may include whom, from the ground up. Usage: floors.py REPO

runtime/base stands on nothing: its own headers, the contract's headers that need no LibTorch, and the toolkit's text.h.
runtime/contract, the bodies of the contract, stands on base; of the toolkit it uses the headers in TOOLKIT.
runtime/ is what a rank needs in order to train: it includes nothing of tools/, where the programs are that use it, and
has at most MOST_LINES lines.
"""
import re
import sys
from pathlib import Path

from source_text import code_lines, report, sources

root = Path(sys.argv[1])
QUOTED = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
ANGLED = re.compile(r"^\s*#\s*include\s*<((?:drivetrain|ATen|c10|torch|caffe2)/[^>]+)>")
BASE = {"drivetrain/" + name for name in ("error.h", "export.h", "options.h", "value.h", "toolkit/text.h")}
# What the default layers and random numbers are made of. They are headers for plugins, so they lie there.
TOOLKIT = {"drivetrain/toolkit/" + name for name in (
    "dtype_name.h", "files/safetensors_dtype.h", "ops/kernel_call.h", "text.h", "text/utf8.h", "units/differentiable.h")}
MOST_LINES = 30_000
ROOMS = ("tools/commands", "tools/lab", "tools")  # where an include of the programs begins


def of_tools(header, folder):
    """The folder of tools/ that has the header, unless it is one of runtime/."""
    if (folder / header).exists() or any((root / place / header).exists() for place in ("runtime", "plugins", ".")):
        return "tools" if header.startswith("tools/") else None
    return next((room for room in ROOMS if (root / room / header).exists()), None)


problems = []
for path in sources(root / "runtime"):
    name = path.relative_to(root)
    floor = name.parts[1]
    for number, line in code_lines(path):
        quoted, angled = QUOTED.match(line), ANGLED.match(line)
        if quoted:
            header = quoted.group(1)
            room = of_tools(header, path.parent)
            below = {"base": ("base/",), "contract": ("base/", "contract/", "kernels/")}.get(floor)
            if room:
                problems.append(f"{name}:{number}: includes {header} of {room}/")
            elif below and header != "internal.h" and not header.startswith(below):
                problems.append(f"{name}:{number}: {floor}/ includes {header}, which stands above it")
        if angled:
            header = angled.group(1)
            if floor == "base" and header not in BASE:
                problems.append(f"{name}:{number}: base/ includes <{header}>")
            if floor == "contract" and header.startswith("drivetrain/toolkit/") and header not in TOOLKIT:
                problems.append(f"{name}:{number}: contract/ includes <{header}>, which stands above it")
counted = [*sources(root / "runtime"), *(root / "runtime").rglob("*.inc")]
lines = sum(path.read_bytes().count(b"\n") for path in counted if not path.stem.endswith("_test"))
if lines > MOST_LINES:
    problems.append(f"runtime: {lines} lines without tests, {MOST_LINES} at most: what does not train lies in tools/")
report(problems, "base stands on nothing, contract on base, runtime/ includes nothing of tools/ and stays small (runtime/README.md)")
