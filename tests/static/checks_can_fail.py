"""Runs every static check on small trees: one it must accept, several that it must refuse with the right line."""
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ONE_KIND = {"runtime/plugin/kinds.cpp": "    {\"attention\", KindRule::exactly_one, \"a\"},\n"}
CASES = [
    # check, file, content, text of the expected complaint (None: accepted); or several files with their contents
    # check, file, content, text of the expected complaint; None: accepted. Further files as a dictionary of contents.
    ("strategy_words", "runtime/a.cpp", "// zero, ddp and 'flash' in comments\nint zero_point = 1'000;\n", None),
    ("strategy_words", "runtime/a.cpp", "int a;\nauto s = \"// ddp\";\n", "runtime/a.cpp:2: names 'ddp'"),
    ("strategy_words", "tools/commands/a/a.cpp", "auto s = \"ddp\";\n", "tools/commands/a/a.cpp:1: names 'ddp'"),
    ("strategy_words", "runtime/a.cpp", "/* one\n two */ bool Flash = true;\n", "runtime/a.cpp:2: names 'Flash'"),
    ("strategy_words", "runtime/a.cpp", "fail(\"the disk is full, see the text on the console\", \"--full\", \"metrics.jsonl\");\n", None),
    ("strategy_words", "runtime/a.cpp", "if (name == \"bf16\") return at::kBFloat16;\ncase at::kHalf:\n  return \"float16\";\n", None),
    ("strategy_words", "runtime/a.cpp", "for (auto s : {\"bf16\", \"fp16\"}) config.erase(s);\n", "runtime/a.cpp:1: names 'bf16'"),
    ("strategy_words", "runtime/a.cpp", "if (dtype == at::kHalf) set(\"fp16.enabled=true\");\n", "names 'fp16'"),
    ("strategy_words", "runtime/a.cpp", "fail(\"enable a precision (sections \\\"bf16\\\")\");\n", "names 'bf16'"),
    ("strategy_words", "runtime/a.cpp", "bool b = id == \"monitor/console\";\n", "names 'console'"),
    ("strategy_words", "runtime/a.cpp", "bool b = name == \"selective\";\n", "names 'selective'"),
    ("strategy_words", {"runtime/a.cpp": "auto s = \"warmest\";\n", "plugins/lr_schedule/warmest/CMakeLists.txt": ""}, "",
     "runtime/a.cpp:1: names 'warmest'"),
    ("strategy_words", {"runtime/a.cpp": "find(\"my_key\");\n", "plugins/monitor/x/CMakeLists.txt":
     "drivetrain_add_plugin(x KIND monitor SECTION a ALIASES b my_key TYPES c)"}, "", "runtime/a.cpp:1: names 'my_key'"),
    ("plugin_includes", "plugins/optimizer/x/x.cpp",
     "#include <vector>\n#include <drivetrain/optimizer.h>\n#include <ATen/ops/add.h>\n", None),
    ("plugin_includes", "plugins/optimizer/x/x.cpp", "#include <drivetrain/optimizer.h>\n#include \"step/norm.h\"\n",
     "plugins/optimizer/x/x.cpp:2: includes step/norm.h"),
    ("plugin_includes", "plugins/optimizer/x/x.cpp", "#include <boost/dll.hpp>\n", "includes boost/dll.hpp"),
    ("plugin_includes", "plugins/optimizer/x/x.cpp", "#include <drivetrain/plan_record.h>\n",
     "includes drivetrain/plan_record.h"),
    ("plugin_includes", "plugins/optimizer/x/x_test.cpp", "#include <drivetrain/plan_record.h>\n", None),
    ("plugin_includes", "plugins/optimizer/x/x_test.cpp", "#include <gtest/gtest.h>\n", None),
    ("plugin_includes", "plugins/optimizer/x/test_x.h", "#include <gtest/gtest.h>\n", None),
    ("plugin_includes", "plugins/optimizer/x/x.cpp", "#include <gtest/gtest.h>\n", "includes gtest/gtest.h"),
    ("public_headers", "runtime/api/drivetrain/a.h", "#pragma once  // like boost::dll\n\nDRIVETRAIN_CONTRACT(a)\n", None),
    ("public_headers", "runtime/api/drivetrain/a.h", "#pragma once\n#include <spdlog/spdlog.h>\n", "a.h:2: mentions spdlog"),
    ("public_headers", "runtime/api/drivetrain/a.h", "#pragma once\n\nDRIVETRAIN_CONTRACT(b)\n",
     "lacks the line DRIVETRAIN_CONTRACT(a)"),
    ("public_headers", "plugins/toolkit/api/drivetrain/toolkit/a.h", "#include <tbb/tbb.h>\n", "a.h:1: mentions tbb"),
    ("public_headers", "runtime/api/drivetrain/a.h", "#include <torch/torch.h>\n", "a.h:1: mentions"),
    ("public_headers", "plugins/toolkit/api/drivetrain/toolkit/a.h", "#include <string>\nstd::vector<int> a;\n",
     "a.h: names std::vector and does not include <vector>"),
    ("public_headers", "plugins/toolkit/api/drivetrain/toolkit/a.h", "#include <string>\nat::Tensor a;\n",
     "a.h: names LibTorch and includes none of it"),
    ("public_headers", "plugins/toolkit/api/drivetrain/toolkit/a.h", "#include <ATen/core/Tensor.h>\nstd::vector<at::Tensor> a;\n",
     None),
    ("promises", {"tests/conformance/a/promises.txt": "one | a.h | Calls it once, on every rank.\n",
                  "runtime/api/drivetrain/a.h": "int a;  // Calls it\n        // once, on every rank. More.\n"}, None),
    ("promises", {"tests/conformance/a/promises.txt": "one | a.h | Calls it twice.\n",
                  "runtime/api/drivetrain/a.h": "int a;  // Calls it once.\n"}, "a/promises.txt:1: a.h does not say"),
    ("promises", {"tests/conformance/a/promises.txt": "one | b.h | Calls it.\n", "runtime/api/drivetrain/a.h": ""},
     "there is no contract header b.h"),
    ("file_lengths", "runtime/a.cpp", "// A.\n" + "int a;\n" * 310, None),
    ("file_lengths", "runtime/a.cpp", "// A.\n" + "int a;\n" * 510, "runtime/a.cpp: 511 lines"),
    ("file_lengths", "runtime/a.cpp", "// A. Over 500\n// lines because of a table.\n" + "int a;\n" * 510, None),
    ("line_lengths", "runtime/a.cpp", "int a;  // " + 109 * "b" + "\n", None),
    ("line_lengths", "runtime/a.cpp", "int a;\n// " + 118 * "b" + "\n", "runtime/a.cpp:2: 121 characters"),
    ("line_lengths", "tests/a.cpp", "auto s = R\"(a\n" + 130 * "b" + ")\";\n", None),
    ("folder_cycles", {"runtime/a/a.h": "#include <vector>\n", "runtime/b/b.cpp": "#include \"a/a.h\"\n"}, None),
    ("folder_cycles", {"runtime/a/a.h": "#include \"b/b.h\"\n", "runtime/b/b.h": "\n#include \"a/a.h\"\n"},
     "runtime/b/b.h:2 includes a/"),
    ("folder_cycles", {"runtime/a/a.h": "#include \"b/b.h\"\n", "runtime/b/b.h": "#include \"c/c.h\"\n",
                       "runtime/c/c.cpp": "#include \"a/a.h\"\n"}, "a -> b -> c -> a"),
    ("folder_cycles", {"tools/commands/a/a.h": "#include \"b/b.h\"\n", "tools/lab/b/b.h": "#include \"a/a.h\"\n"},
     "tools/lab/b/b.h:1 includes a/"),
    ("folder_cycles", {"tools/a/a.h": "#include \"b/b.h\"\n", "tools/b/b.cpp": "#include \"a/a.h\"\n"}, "tools/b/b.cpp:1 includes a/"),
    ("folder_cycles", {"tools/a/main.cpp": "#include \"b/b.h\"\n", "tools/a/a.h": "", "tools/b/b.cpp": "#include \"a/a.h\"\n"}, None),
    ("folder_cycles", {"runtime/a/a.h": "#include \"toolkit/ops/x.h\"\n"}, "private header of plugins/toolkit"),
    ("floors", {"runtime/base/a.cpp": "#include <drivetrain/value.h>\n#include \"base/b.h\"\n", "runtime/base/b.h": "",
                "runtime/contract/c.cpp": "#include \"base/b.h\"\n#include <drivetrain/toolkit/text.h>\n",
                "runtime/run/d.cpp": "#include \"contract/e.h\"  // report/f.h\n", "tools/commands/report/f.h": ""}, None),
    ("floors", {"runtime/base/a.cpp": "\n#include \"config/b.h\"\n"}, "runtime/base/a.cpp:2: base/ includes config/b.h"),
    ("floors", {"runtime/base/a.h": "#include <ATen/core/Tensor.h>\n"}, "base/ includes <ATen/core/Tensor.h>"),
    ("floors", {"runtime/base/a.h": "#include <drivetrain/param.h>\n"}, "base/ includes <drivetrain/param.h>"),
    ("floors", {"runtime/contract/a.cpp": "#include \"state/b.h\"\n"}, "contract/ includes state/b.h"),
    ("floors", {"runtime/contract/a.cpp": "#include <drivetrain/toolkit/layers/linear.h>\n"}, "which stands above it"),
    ("floors", {"runtime/run/a.cpp": "#include \"report/b.h\"\n", "tools/commands/report/b.h": ""},
     "runtime/run/a.cpp:1: includes report/b.h of tools/commands/"),
    ("floors", {"runtime/run/a.cpp": 20_000 * "int a;\n", "runtime/run/b.h": 10_001 * "int b;\n"},
     "runtime: 30001 lines without tests, 30000 at most"),
    ("floors", {"runtime/run/a.cpp": 30_000 * "int a;\n", "runtime/run/a_test.cpp": "int b;\n"}, None),
    ("floors", {"runtime/run/a.cpp": "#include \"launch/b.h\"\n", "tools/launch/b.h": ""}, "includes launch/b.h of tools/"),
    ("plugin_words", {"plugins/a/x/CMakeLists.txt": "drivetrain_add_plugin(x KIND a)", "plugins/a/x/x.cpp": "auto k = \"xs\";",
                      "plugins/b/y/CMakeLists.txt": "drivetrain_add_plugin(y KIND b)",
                      "plugins/b/y/y.cpp": "constexpr auto kAxis = \"ys\";  // \"x\"\nrefuse(\"use a/x\");\n"}, None),
    ("plugin_words", {"plugins/a/x/CMakeLists.txt": "drivetrain_add_plugin(x KIND a)",
                      "plugins/a/x/x.cpp": "int a;\nauto k = mesh.size(\"ys\");\n",
                      "plugins/b/y/CMakeLists.txt": "drivetrain_add_plugin(y KIND b)",
                      "plugins/b/y/y.cpp": "constexpr auto kAxis = \"ys\";\n"},
     "plugins/a/x/x.cpp:2: goes by 'ys'"),
    ("plugin_words", {"plugins/a/x/CMakeLists.txt": "drivetrain_add_plugin(x KIND a)",
                      "plugins/a/x/x.cpp": "bool b = claim.by == \"b/y\";\n",
                      "plugins/b/y/CMakeLists.txt": "drivetrain_add_plugin(y KIND b)"},
     "plugins/a/x/x.cpp:1: goes by 'b/y'"),
    ("plugin_words", {"plugins/a/x/CMakeLists.txt": "drivetrain_add_plugin(x KIND a)",
                      "plugins/a/x/x.cpp": "auto k = mesh.size(\"ys\");\n",
                      "plugins/b/y/CMakeLists.txt": "drivetrain_add_plugin(y KIND b)",
                      "plugins/b/y/y.cpp": "Y(const Services& s) : SequenceSharing(\"ys\", s) {}\n"},
     "plugins/a/x/x.cpp:1: goes by 'ys'"),
    ("plugin_words", {"plugins/a/x/CMakeLists.txt": "drivetrain_add_plugin(x KIND a)",
                      "plugins/a/x/x.cpp": "auto k = mesh.size(\"dp\");\n",
                      "plugins/toolkit/sharding/plan.cpp": "ctx.claim_axis(\"dp\", kRest);\n"},
     "plugins/a/x/x.cpp:1: goes by 'dp'"),
    ("plugin_words", {"plugins/context_parallel/x/CMakeLists.txt": "drivetrain_add_plugin(x KIND context_parallel)"},
     "its axis is not found"),
    ("shell_syntax", "tools/a.sh", "echo fine\n", None),
    ("shell_syntax", "tools/a.sh", "if true; then\n", "tools/a.sh"),
    ("golden_makers", "tests/golden/data/found_in_the_street.json", "{}", "found_in_the_street.json: no program makes it"),
    ("noise_words", "tests/a_test.cpp", "usleep(1);  // Waits: for nothing\n// Waits: so\nusleep(1);\n// a sleep(1) in comments\n", None),
    ("noise_words", "tests/a_test.cpp", "int a;\nstd::this_thread::sleep_for(t);  // one second\n", "tests/a_test.cpp:2: says 'sleep_for'"),
    ("noise_words", "tests/a_test.cpp", "// Waits: so\n\nlet_pass(1);\n", "tests/a_test.cpp:3: says 'let_pass('"),
    ("noise_words", "tests/a_test.cpp", "EXPECT_LT(seconds_of(f), 2);\nEXPECT_LT(seconds(f), 2);\n", "tests/a_test.cpp:2: says"),
    ("noise_words", "tests/a_test.cpp", "run(\"kill -9 $$; sleep 0.1\");\n", "tests/a_test.cpp:1: says 'sleep'"),
    ("noise_words", "plugins/a/b/b_test.cpp", "auto t = std::chrono::steady_clock::now();\n", "b_test.cpp:1: says 'steady_clock'"),
    ("noise_words", "plugins/a/b/b.cpp", "auto t = std::chrono::steady_clock::now();\n", None),
    ("noise_words", "tests/a.py", "import time\ntime.sleep(1)  # a moment\n", "tests/a.py:2: says 'time.sleep'"),
    ("noise_words", "tests/a.py", "time.sleep(1)  # Waits: for nothing\n", None),
    ("named_folders", {**ONE_KIND, "plugins/attention/x/x.cpp": "", "plugins/toolkit/a.h": "",
                       "README.md": "| folder | |\n| --- | --- |\n| [`plugins/`](p) | |\n| `runtime/` | one of 1 kinds of plugin |\n"}, None),
    ("named_folders", {**ONE_KIND, "plugins/attention/x.cpp": "", "plugins/novel/x.cpp": ""}, "plugins: has 'novel', which is none"),
    ("named_folders", {**ONE_KIND, "tools/templates/common/a": ""}, "tools/templates: does not have 'attention'"),
    ("named_folders", {**ONE_KIND, "runtime/api/README.md": "| kind | header |\n| --- | --- |\n| `model` | `model.h` |\n"},
     "runtime/api/README.md: does not have 'attention'"),
    ("named_folders", {**ONE_KIND, "plugins/attention/x": "", "plugins/README.md": "\na plugin of any of the eighteen kinds\n"},
     "plugins/README.md:2: says 18 kinds; there are 1"),
    ("named_folders", {**ONE_KIND, "runtime/README.md": "| folder | |\n| --- | --- |\n| `plugin/`, `gone/` | |\n"},
     "runtime/README.md: has 'gone', which is none"),
    ("named_folders", {**ONE_KIND, "runtime/README.md": "| folder | |\n| --- | --- |\n| `api/` | |\n", "runtime/api/a.h": ""},
     "runtime/README.md: does not have 'plugin'"),
    ("named_folders", "runtime/plugin/a.cpp", "", "no table of kinds is found"),
    ("links", {"a/README.md": "[b](../b.md#two-words), [c](https://x.org)\n```\n[d](gone)\n```\n", "b.md": "## Two `words`\n"}, None),
    ("links", "a/README.md", "\n[b](../b.md)\n", "a/README.md:2: ../b.md is not there"),
    ("links", {"README.md": "[b](b.md#three)\n", "b.md": "## Two\n```\n# three\n```\n"}, "README.md:1: b.md has no heading three"),
    ("front_page", {"README.md": "## How fast\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n", "tools/bench/FIGURES.md": "| 1 | 2 |\n"}, None),
    ("front_page", {"README.md": "## How fast\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n", "tools/bench/FIGURES.md": "| 1 | 3 |\n"},
     "FIGURES.md: does not have this row of README.md: | 1 | 2 |"),
    ("front_page", {"README.md": "## How fast\n", "tools/bench/FIGURES.md": ""}, "has no table under '## How fast'"),
    ("front_page", {"README.md": "## How fast\n" + 150 * "\n", "tools/bench/FIGURES.md": ""}, "README.md: 151 lines"),
    ("front_page", {"README.md": "## How fast\n" + 1100 * "word ", "tools/bench/FIGURES.md": ""}, "README.md: 1103 words"),
    ("plugin_symbols", "nothing.txt", "", "no plugin is there"),
]

failures = 0
for check, *files, complaint in CASES:
    tree = files[0] if isinstance(files[0], dict) else {files[0]: files[1]}
    with tempfile.TemporaryDirectory() as folder:
        for name, content in tree.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        for file, text in (name if isinstance(name, dict) else {name: content}).items():
            path = Path(folder) / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        run = subprocess.run([sys.executable, "-B", HERE / f"{check}.py", folder], capture_output=True, text=True)
    right = run.returncode == 0 if complaint is None else run.returncode == 1 and complaint in run.stdout
    if not right:
        failures += 1
        print(f"{check} on {str(tree)[:90]}: wanted {complaint or 'no complaint'}, "
              f"found exit {run.returncode}: {run.stdout}{run.stderr}")
sys.exit(1 if failures else 0)
