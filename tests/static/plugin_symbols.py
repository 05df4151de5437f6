"""Every built plugin exports exactly one symbol. Usage: plugin_symbols.py PLUGIN_FOLDER"""
import subprocess
import sys
from pathlib import Path

from source_text import report

folder = Path(sys.argv[1])
libraries = sorted(folder.glob("*.so"))
problems = [] if libraries else [f"{folder}: no plugin is there; build the target all first"]
for library in libraries:
    listing = subprocess.run(["nm", "-D", "--defined-only", "--extern-only", library], check=True, capture_output=True, text=True).stdout
    symbols = [line.split()[-1] for line in listing.splitlines()]
    if symbols != ["drivetrain_plugin"]:
        problems.append(f"{library.name}: exports {' '.join(symbols) or 'nothing'}")
report(problems, "a plugin exports drivetrain_plugin and nothing else (drivetrain_add_plugin sees to it)")
