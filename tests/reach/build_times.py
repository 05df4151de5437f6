"""How long compiling and linking took in a build. Usage: build_times.py BUILD SINCE, SINCE in seconds since 1970.

Ninja's log has the start and the end of every step of the last build of each output.
"""
import sys
from pathlib import Path

LINKED = {".so", ".a", ""}


def main():
    build, since = Path(sys.argv[1]), float(sys.argv[2])
    steps = {"compile": {}, "link": {}}
    for line in (build / ".ninja_log").read_text(encoding="utf-8").splitlines()[1:]:
        start, end, changed, output, _ = line.split("\t")
        if int(changed) / 1e9 < since:
            continue
        suffix = Path(output).suffix
        if suffix in (".o", ".gch"):
            steps["compile"][output] = (int(end) - int(start)) / 1000
        elif suffix in LINKED and not output.startswith("CMakeFiles") and "/CMakeFiles/" not in output:
            steps["link"][output] = (int(end) - int(start)) / 1000
    for kind, times in steps.items():
        longest = sorted(times.items(), key=lambda entry: -entry[1])[:3]
        named = ", ".join(f"{output.replace('CMakeFiles/', '')} {seconds:.0f} s" for output, seconds in longest)
        print(f"-- {kind:10} {len(times):5} steps, {sum(times.values()):.0f} s in sum" + (f"; longest: {named}" if named else ""))


main()
