"""No plugin goes by another plugin's axis or name: facts and abilities of the plan say what others do. Usage:
plugin_words.py REPO

Looked at are string literals that are nothing but an axis of the mesh, a name, or an id ("ring", "context_parallel/ring").
Advice to people inside of a longer text ("use attention/standard") decides nothing and stays, and so does the default of an
option that names a plugin (PluginChoice), in whose place a config may name another one."""
import re
import sys
from pathlib import Path

from source_text import code_lines, report, sources, without_comments

# Names that are also plain words: alone in a literal they need not mean the plugin.
PLAIN_WORDS = {"accumulate", "all_to_all", "bf16", "bytes", "console", "constant", "fp16", "full", "interleaved", "local", "none", "offload", "selective",
               "standard", "synthetic", "text", "warmup", "zero"}
# A constant, a claim, or the name that a class of the toolkit is given to claim: SequenceSharing("cp", ...).
AXIS = re.compile(r'(?:kAxis\s*=\s*|claim_axis\(\s*|\b\w+Sharing\(\s*)"([^"]+)"')
KINDS_WITH_AN_AXIS = {"tensor_parallel", "context_parallel", "expert_parallel"}  # one whose axis is not found would make this check blind
LITERAL = re.compile(r'"(?:\\.|[^"\\\n])*"(?:\s*"(?:\\.|[^"\\\n])*")*')  # with those that follow at once: one text
DEFAULT = re.compile(r'PluginChoice \w+ = \{\.type = "[^"]*"\}')
NAME = re.compile(r"drivetrain_add_plugin\(\s*(\S+)\s+KIND\s+([^\s)]+)")


def literals(path):
    """(line number, text) of every string literal."""
    text = DEFAULT.sub("", without_comments(path.read_text(encoding="utf-8", errors="replace")))
    for match in LITERAL.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, re.sub(r'"\s*"', "", match.group())[1:-1]


def is_test(path):
    return path.stem.endswith("_test") or path.name.startswith("test_")


repo = Path(sys.argv[1])
toolkit = {axis for path in sources(repo / "plugins/toolkit") if not is_test(path)
           for _, line in code_lines(path) for axis in AXIS.findall(line)}  # claimed for the plugins that stand on it
problems = []
plugins = {}  # folder -> its own words
for lists in sorted((repo / "plugins").glob("*/*/CMakeLists.txt")):
    match = NAME.search(lists.read_text())
    if not match:
        continue
    name, kind = match.groups()
    words, axes = {f"{kind}/{name}"} | ({name} - PLAIN_WORDS), set()
    for path in sources(lists.parent):
        if not is_test(path):
            axes |= {axis for _, line in code_lines(path) for axis in AXIS.findall(line)}
    if kind in KINDS_WITH_AN_AXIS and not axes:
        problems.append(f"{lists.parent.relative_to(repo)}: its axis is not found; teach AXIS how it is claimed")
    plugins[lists.parent] = words | axes

for folder, own in plugins.items():
    others = toolkit.union(*(words for other, words in plugins.items() if other != folder)) - own
    for path in sources(folder):
        if is_test(path) or path.relative_to(folder).parts[0].startswith(("on_", "under_")):
            continue
        problems += [f"{path.relative_to(repo)}:{number}: goes by '{literal}', which is another plugin's"
                     for number, literal in literals(path) if literal in others]
report(problems, "plugins know facts and abilities of the plan (plan_context.h), never each other")
