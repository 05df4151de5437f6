"""The plugins that the target quickstart_run builds are those of the run of tools/quickstart. Usage: quickstart_parts.py PROGRAM
REPO"""
import json
import re
import subprocess
import sys
from pathlib import Path

program, repo = sys.argv[1], Path(sys.argv[2])
plan = subprocess.run([program, "launch", "-n", "2", repo / "configs/quickstart.json", "--plan", "--json"], check=True,
                      capture_output=True, text=True).stdout
used = {plugin["id"].replace("/", "_") for plugin in json.loads(plan)["plugins"] if plugin["enabled"]}
listed = re.search(r"set\(quickstart_plugins([^)]*)\)", (repo / "CMakeLists.txt").read_text())
built = set(listed.group(1).split()) if listed else set()
if built != used:
    sys.exit(f"CMakeLists.txt: quickstart_plugins lacks {sorted(used - built)} and needs no {sorted(built - used)}")
