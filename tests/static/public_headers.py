"""Public headers mention no library that an author of plugins need not have. Usage: public_headers.py REPO

Every contract header names itself with DRIVETRAIN_CONTRACT, which a plugin's list of headers is made of. That each
header compiles alone is checked by the target headers_alone.
"""
import re
import sys
from pathlib import Path

from source_text import code_lines, report, sources

repo = Path(sys.argv[1])
HIDDEN = re.compile(r"(?<![A-Za-z0-9_])(boost|rapidjson|tbb|oneapi|spdlog|fmt)(?=(::|/|\.h))|\b(BOOST|RAPIDJSON|SPDLOG)_",
                    re.IGNORECASE)
WHOLE = re.compile(r"#\s*include\s*<(torch/(torch|all|extension)\.h|ATen/ATen\.h)>")

problems = []
contract = sources(repo / "runtime" / "api")
for path in contract:
    if path.stem != "export" and f"\nDRIVETRAIN_CONTRACT({path.stem})\n" not in path.read_text(encoding="utf-8"):
        problems.append(f"{path.relative_to(repo)}: lacks the line DRIVETRAIN_CONTRACT({path.stem})")
for path in contract + sources(repo / "plugins" / "toolkit" / "api"):
    for number, line in code_lines(path):
        for match in list(HIDDEN.finditer(line)) + list(WHOLE.finditer(line)):
            problems.append(f"{path.relative_to(repo)}:{number}: mentions {match.group().strip()}")
report(problems, "SDK headers show no Boost, RapidJSON, TBB or spdlog, and no header of all of LibTorch")
