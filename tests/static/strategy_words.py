"""No implementation is named in runtime/ and in the commands outside comments. Usage: strategy_words.py REPO

Two rules, whose words are in strategy_words.txt: words that may stand nowhere in code, and words that may not stand in a string
literal as the name of a plugin. The second rule also takes the names of all plugins of this tree, and a numeric type's name is
none where the line speaks of types (at::kHalf, Dtype, "f32") or stands after a `case` that does."""
import re
import sys
from pathlib import Path

from source_text import code_lines, report, sources

# Studies have words of their own for "full" and "warmup", and start runs by their configs alone.
ROOMS = ("runtime", "tools/commands", "tools/lab/bench", "tools/lab/planner", "tools/lab/predict")
LITERAL = re.compile(r'"((?:\\.|[^"\\\n])*)"')
TYPES = {"bf16", "bfloat16", "fp16", "float16"}
SPEAKS_OF_TYPES = re.compile(r'k?(?:BFloat16|Half|Float)\b|[Dd]type|"(?:f16|f32|fp32|float32|half)"')
# Of drivetrain_add_plugin.
KEYWORDS = {"KIND", "SOURCES", "SUMMARY", "SECTION", "ALIASES", "NUMBER", "ON", "OFF", "AUTO", "OFF_UNLESS_ENABLED", "TYPES", "DEFAULT",
            "ROUNDING", "SAME_BITS", "DEVICE", "CUDA", "NCCL", "ENTRIES", "LICENSE", "VERSION", "LINK"}


def read_lists(path):
    """{section: its lines}, without comments."""
    lists, section = {}, None
    for line in path.read_text().splitlines():
        if line.startswith("["):
            section = lists.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            section.append(line)
    return lists


def names_of_plugins(repo):
    """Names, types and sections of the plugins of this tree, without those that are a kind's own name."""
    names, kinds = set(), set()
    for build in repo.glob("plugins/*/*/CMakeLists.txt"):
        kinds.add(build.parent.parent.name)
        names.add(build.parent.name)
        keyword = ""
        for word in re.findall(r'"[^"]*"|[^\s()]+', build.read_text()):
            if word in KEYWORDS:
                keyword = word
            elif keyword in ("TYPES", "SECTION", "ALIASES"):
                names.add(word)
    return names - kinds


def one_of(words):
    return "(?:" + "|".join(sorted(map(re.escape, words), key=len, reverse=True)) + ")"


def name_in(literal, words):
    """The word by which a literal names a plugin, or None."""
    quoted = rf'(?:\\["\']|`)({words})(?:\\["\']|`)'
    part = rf"(?:^|[\s(,])(?:[a-z_]+/({words})(?![\w/.-])|({words})\.[a-z_])"
    match = re.fullmatch(words, literal, re.IGNORECASE) or re.search(f"{quoted}|{part}", literal, re.IGNORECASE)
    return match and next((group for group in match.groups() if group), match.group())


repo = Path(sys.argv[1])
lists = read_lists(Path(__file__).with_name("strategy_words.txt"))
anywhere = one_of(word for line in lists["anywhere"] for word in line.split())
pattern = re.compile(rf"(?<![A-Za-z0-9_]){anywhere}(?![A-Za-z0-9_])", re.IGNORECASE)
literal_words = one_of({word for line in lists["literals"] for word in line.split()} | names_of_plugins(repo))
allowed = {tuple(line.split()[:2]) for line in lists["allowed"]}

problems = []
for path in [path for room in ROOMS for path in sources(repo / room)]:
    place = str(path.relative_to(repo))
    before = ""
    for number, line in code_lines(path):
        found = [match.group() for match in pattern.finditer(line)]
        for literal in [] if line.lstrip().startswith("#include") else LITERAL.findall(line):
            word = name_in(literal, literal_words)
            is_type = word and word == literal and word.lower() in TYPES and SPEAKS_OF_TYPES.search(before + line)
            if word and not is_type and not allowed & {(word.lower(), "*"), (word.lower(), place)} and word not in found:
                found.append(word)
        problems += [f"{place}:{number}: names '{word}'" for word in found]
        before = line if line.lstrip().startswith("case ") else ""
report(problems, "runtime/ and the commands know kinds, never implementations (tests/static/strategy_words.txt)")
