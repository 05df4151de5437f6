"""libdrivetrain.so exports two versions of symbols. DRIVETRAIN is the contract and nothing else: every symbol is of a name that
a header of the contract has, or of the standard library's for such a type. DRIVETRAIN_PRIVATE is for the commands of the same
build: of the namespace drivetrain, and nothing of the contract. Usage: contract_exports.py LIBRARY HEADER_FOLDER"""
import re
import subprocess
import sys
from pathlib import Path

from source_text import report, without_comments

library, headers = Path(sys.argv[1]), Path(sys.argv[2])
words = set()
for header in headers.glob("*.h"):
    words |= set(re.findall(r"\w+", without_comments(header.read_text(encoding="utf-8"))))
PREFIX = re.compile(r"^(?:(?:non-)?virtual thunk to |(?:vtable|typeinfo name|typeinfo|VTT|guard variable) for )")
CALLED_BY_THE_PROGRAM = {"drivetrain_current_call", "drivetrain_any_call", "drivetrain_guards_descriptor",
                         "drivetrain_device_error"}


def names(symbol):
    """The names of `drivetrain::Class::function(arguments)`: Class and function."""
    plain = re.sub(r"\[abi:\w+\]", "", PREFIX.sub("", symbol)).split("(")[0]
    plain = re.sub(r"<.*", "", plain)
    return [part.lstrip("~") for part in plain.split("::") if part]


problems = []
listing = subprocess.run(["nm", "-D", "--defined-only", "-C", library], check=True, capture_output=True, text=True).stdout
symbols = {"DRIVETRAIN": set(), "DRIVETRAIN_PRIVATE": set()}
for line in listing.splitlines():
    symbol, _, version = line.split(" ", 2)[2].rpartition("@@")
    if symbol and version in symbols:
        symbols[version].add(symbol)
    elif line.split(" ", 2)[2] not in symbols:  # the versions themselves
        problems.append(f"{library.name}: {line.split(' ', 2)[2]} has no version of ours")
for symbol in sorted(symbols["DRIVETRAIN"]):
    path = names(symbol)
    if symbol in CALLED_BY_THE_PROGRAM:
        continue
    if path and path[0] == "std":
        path = ["drivetrain"] + re.findall(r"drivetrain::(\w+)", symbol)
    if not path or path[0] != "drivetrain":
        problems.append(f"{library.name}: {symbol} is not of the namespace drivetrain")
        continue
    strange = [name for name in path[1:] if name not in words and not name.startswith("operator")]
    if strange:
        problems.append(f"{library.name}: {symbol}: no header of the contract has {strange[0]}")
for symbol in sorted(symbols["DRIVETRAIN_PRIVATE"]):
    if "drivetrain::" not in symbol:
        problems.append(f"{library.name}: {symbol} is not of the namespace drivetrain")
for version, found in symbols.items():
    if not found:
        problems.append(f"{library}: exports nothing as {version}")
report(problems, "what plugins link is the contract; insides are for commands and tests (runtime/CMakeLists.txt)")
