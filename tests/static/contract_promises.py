"""The contract is the one that tests/static/contract/ records. Usage: contract_promises.py REPO [--write | --self-test]

tests/static/contract/digests.txt has a line for each header of the contract: name, digest and the words of the CHANGELOG by
which its last change was told ("-": none since the file was first written). virtual_functions.txt has the virtual functions
of every class of the contract in the order of its table. Within a major version functions may be added at the end of a
class and nothing else may change there: sources of plugins compile, and a plugin that is built again works.

--write records what is there now, and refuses a changed header that no new line of the CHANGELOG names (`attention.h`).
"""
import hashlib
import re
import sys
from pathlib import Path

from source_text import report, without_comments

RULE = ("a changed header of the contract gets a line in CHANGELOG.md that names it; then "
        "`python3 -B tests/static/contract_promises.py . --write` records it")
PURE = " = 0"
# The runtime derives from these; plugins only call them.
OF_THE_RUNTIME = {"Log", "PlanContext", "PluginMaker", "StateVisitor", "StepContext", "Store"}


def digest(text):
    """Of a header without comments and white space, as tools/cmake/api_digest.cmake means it."""
    return hashlib.sha256(re.sub(r"\s+", "", without_comments(text)).encode()).hexdigest()[:16]


def parameter_type(parameter):
    """Without its name and default: `const at::Tensor& x = {}` is `const at::Tensor&`."""
    words = parameter.split("=")[0].strip()
    match = re.match(r"^(.*[\w>&*\]])[\s&*]*?\s+(?:\w+)$", words)
    named = re.match(r"^(.*?[\s&*>])(\w+)$", words)
    return (named.group(1) if named and match else words).strip()


def split_parameters(text):
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += c in "<({["
        depth -= c in ">)}]"
        if c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    parts.append(text[start:])
    return [p for p in parts if p.strip()]


def signature(declaration):
    """`virtual void f(const A& a, int b = 3) const = 0;` is `void f(const A&, int) const`; an override is none."""
    text = " ".join(declaration.split())
    open_at = text.index("(")
    depth, close_at = 0, open_at
    for close_at in range(open_at, len(text)):
        depth += text[close_at] == "("
        depth -= text[close_at] == ")"
        if depth == 0:
            break
    behind = text[close_at + 1:].split("{")[0].split("=")[0]
    if re.search(r"\boverride\b", behind):
        return None
    types = ", ".join(parameter_type(p) for p in split_parameters(text[open_at + 1:close_at]))
    pure = PURE if re.search(r"=\s*0\s*;", text[close_at:]) else ""
    return (text[:open_at].removeprefix("virtual").strip() + f"({types})" + " " + behind.replace(";", "").strip()).strip() + pure


def body_of(text, at):
    depth = 0
    for i in range(at, len(text)):
        depth += text[i] == "{"
        depth -= text[i] == "}"
        if depth == 0:
            return text[at + 1:i]
    return text[at + 1:]


def declarations(body):
    """Statements of a class's own level: nested braces are dropped."""
    flat, depth = "", 0
    for c in body:
        if c == "}" and depth == 1:
            flat += ";"
        depth -= c == "}"
        if depth == 0 and c != "}":
            flat += c if c != "{" else ""
        depth += c == "{"
    return [d.strip() for d in flat.split(";")]


def virtual_functions(text):
    """{class: [signature, ...]} of a header, in the order of declaration."""
    code = re.sub(r"^\s*#[^\n]*(?:\\\n[^\n]*)*", "", without_comments(text), flags=re.M)
    classes = {}
    for match in re.finditer(r"\b(?:class|struct)\s+(?:DRIVETRAIN_API\s+)?(\w+)(?:\s+final)?\s*(?::[^;{]*)?\{", code):
        functions = []
        for statement in declarations(body_of(code, match.end() - 1)):
            statement = re.sub(r"^(?:(?:public|private|protected)\s*:\s*)+", "", statement)
            if re.match(r"(?:virtual\b|~\w+\(\)\s*override)", statement):
                found = signature(statement + ";")
                if found:
                    functions.append(found)
        if functions:
            classes[match.group(1)] = functions
    return classes


def compare_tables(recorded, found):
    problems = []
    for name, before in recorded.items():
        now = found.get(name)
        if now is None:
            problems.append(f"{name}: the class is gone; plugins that use it do not compile. That needs a new major version")
            continue
        for i, function in enumerate(before):
            if i >= len(now):
                problems.append(f"{name}: {function} is gone. That needs a new major version")
            elif now[i] != function and function in now:
                problems.append(f"{name}: {now[i]} stands before {function}; new functions go to the end of the class")
                break
            elif now[i] != function:
                problems.append(f"{name}: {function} is {now[i]} now. That needs a new major version; add a function at the end "
                                "of the class instead, whose default does what the old one did")
                break
        else:
            added = now[len(before):]
            for function in added:
                needs_default = function.endswith(PURE) and name not in OF_THE_RUNTIME
                problems.append(f"{name}: {function} is added " + (
                    "without a default: plugins that derive from it do not compile" if needs_default else "and not recorded"))
    return problems + [f"{name}: the class is new and not recorded" for name in found if name not in recorded]


def read_digests(path):
    rows = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        if line and not line.startswith("#"):
            name, value, words = line.split(None, 2)
            rows[name] = (value, words)
    return rows


def read_tables(path):
    tables, functions = {}, []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        if line.startswith("  "):
            functions.append(line.strip())
        elif line and not line.startswith("#"):
            functions = tables.setdefault(line, [])
    return tables


def told_lines(changelog, header):
    return [line.strip() for line in changelog.splitlines() if f"`{header}`" in line]


def compare_digests(recorded, found, changelog):
    problems = []
    for name, value in found.items():
        if name not in recorded:
            problems.append(f"{name}: the header is new and not recorded")
        elif recorded[name][0] != value:
            problems.append(f"{name}: the header has changed (digest {value}, recorded {recorded[name][0]}): plugins that include "
                            "it must be built again")
        elif recorded[name][1] != "-" and recorded[name][1] not in changelog:
            problems.append(f"{name}: CHANGELOG.md has no line \"{recorded[name][1]}\" any more")
    return problems + [f"{name}: the header is gone" for name in recorded if name not in found]


def new_words(name, recorded, changelog):
    """The line that tells of this change; none if the CHANGELOG has only those of changes before."""
    for line in told_lines(changelog, name):
        if line != recorded[name][1]:
            return line
    return None


def write(folder, recorded, digests, tables, changelog):
    rows, problems = [], []
    for name, value in sorted(digests.items()):
        words = recorded[name][1] if name in recorded else "-"
        if name in recorded and recorded[name][0] != value:
            words = new_words(name, recorded, changelog)
            if not words:
                problems.append(f"{name} has changed, and no new line of CHANGELOG.md has `{name}`")
        rows.append(f"{name} {value} {words}")
    if problems:
        report(problems, RULE)
    folder.mkdir(exist_ok=True)
    head = "# Written by tests/static/contract_promises.py, which says what it is for. Do not edit.\n"
    (folder / "digests.txt").write_text(head + "\n".join(rows) + "\n", encoding="utf-8")
    text = "".join(f"{name}\n" + "".join(f"  {f}\n" for f in functions) for name, functions in sorted(tables.items()))
    (folder / "virtual_functions.txt").write_text(head + text, encoding="utf-8")


def self_test():
    old = virtual_functions("class DRIVETRAIN_API A : public B {\n public:\n  ~A() override;\n  virtual void f(const X& x, int n = 3) "
                            "const = 0;\n  virtual std::map<int, int> g(std::map<int, int> m) { return {}; }\n  void h();\n"
                            "  int i() override;\n};")
    assert old == {"A": ["~A()", "void f(const X&, int) const = 0", "std::map<int, int> g(std::map<int, int>)"]} or old == {
        "A": ["void f(const X&, int) const = 0", "std::map<int, int> g(std::map<int, int>)"]}, old
    functions = old["A"]
    assert compare_tables(old, old) == []
    renamed = virtual_functions("class A {\n  virtual void f(const X& other, int m) const = 0;\n  virtual std::map<int, int> "
                                "g(std::map<int, int> k);\n};")
    assert compare_tables(old, renamed) == [], compare_tables(old, renamed)
    for now, words in ((functions + ["void k()"], "not recorded"), (functions + ["void k() = 0"], "without a default"),
                       (["void k()"] + functions, "go to the end"),
                       (functions[:-1], "is gone"), (functions[:-1] + ["int g()"], "new major version"), (None, "class is gone")):
        found = compare_tables(old, {} if now is None else {"A": now})
        assert len(found) == 1 and words in found[0], (now, found)
    told = "- `a.h`: one\n- `a.h`: two\n"
    assert compare_digests({"a.h": ("1", "-")}, {"a.h": "2"}, told) and not compare_digests({"a.h": ("1", "-")}, {"a.h": "1"}, told)
    assert compare_digests({"a.h": ("1", "- `a.h`: three")}, {"a.h": "1"}, told)
    assert new_words("a.h", {"a.h": ("1", "- `a.h`: one")}, told) == "- `a.h`: two"
    assert new_words("a.h", {"a.h": ("1", "- `a.h`: one")}, "- `a.h`: one\n") is None
    print("the check finds what it is meant to find")


def main():
    if sys.argv[2:] == ["--self-test"]:
        return self_test()
    repo = Path(sys.argv[1])
    folder = repo / "tests" / "static" / "contract"
    headers = {p.name: p.read_text(encoding="utf-8") for p in sorted((repo / "runtime" / "api" / "drivetrain").glob("*.h"))}
    digests = {name: digest(text) for name, text in headers.items()}
    tables = {}
    for text in headers.values():
        tables.update(virtual_functions(text))
    changelog = (repo / "CHANGELOG.md").read_text(encoding="utf-8")
    recorded = read_digests(folder / "digests.txt")
    if sys.argv[2:] == ["--write"]:
        return write(folder, recorded, digests, tables, changelog)
    problems = compare_digests(recorded, digests, changelog)
    report(problems + compare_tables(read_tables(folder / "virtual_functions.txt"), tables), RULE)


main()
