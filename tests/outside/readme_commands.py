"""Runs every command of README.md, in its order, in a folder that looks like a checkout. Usage: readme_commands.py REPO BUILD

The plugin of the page is written to that folder, too. What its two first commands do cannot happen inside of a test.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

repo, build = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
NOT_RUN = {"tools/quickstart": "sets the machine up and builds this tree", "tools/check": "runs this test"}
SHORTER = {"train_steps=100": "train_steps=2", "--tokens 200": "--tokens 5",
           "lr_width.json": "lr_width.json --plan"}
MY_JSON = """{
  "train_steps": 2, "train_batch_size": 4, "save_final": false,
  "model": {"type": "gpt", "params": {"num_layers": 1, "hidden_size": 32, "num_attention_heads": 2, "vocab_size": 64,
            "max_position_embeddings": 16}},
  "dataset": {"type": "synthetic", "params": {"seq_length": 16}},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
  "scheduler": {"params": {"every": 1}}
}"""

text = (repo / "README.md").read_text()
blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
commands = [line for language, block in blocks if not language for line in block.splitlines() if line.strip()]
shown = {language: block for language, block in blocks if language}
for words in SHORTER:
    if words not in text:
        sys.exit(f"README.md does not say {words} any more: mend SHORTER of this test")

with tempfile.TemporaryDirectory() as temporary:
    checkout = Path(temporary) / "checkout"
    (checkout / "build").mkdir(parents=True)
    (checkout / "build/release").symlink_to(build)
    (checkout / "configs").symlink_to(repo / "configs")
    (checkout / "CMakeLists.txt").write_text(shown["cmake"])
    (checkout / "halving.cpp").write_text(shown["cpp"])
    (checkout / "my.json").write_text(MY_JSON)
    environment = {**os.environ, "HOME": temporary}
    run = 0
    for line in commands:
        command = line.split("  #")[0].strip()
        if command in NOT_RUN:
            if not shutil.which(repo / command):
                sys.exit(f"README.md: {command} is no program of this checkout")
            continue
        for words, others in SHORTER.items():
            command = command.replace(words, others)
        ran = subprocess.run(["bash", "-c", command], cwd=checkout, env=environment, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
        if ran.returncode:
            sys.exit(f"README.md: '{command}' ended with exit code {ran.returncode}:\n{ran.stdout}")
        run += 1
    made = list(checkout.glob("runs/*/metrics.jsonl"))
    if len(made) != 2:
        sys.exit(f"README.md: two runs were to write metrics.jsonl, found {made}")
    rates = re.findall(r'"lr":\s*([^,}]+)', next(path for path in made if path.parent.name == "my").read_text())
    if [float(rate) for rate in rates] != [1e-3, 5e-4]:
        sys.exit(f"README.md: the plugin halves the rate after each step here, found {rates}")
    print(f"{run} commands of README.md ran; not run: {', '.join(NOT_RUN)}")
