"""Every study of configs/studies plans: its keys exist, every cell would run, and none but those that it says is left out.
And what a plan says of cells that will end badly, before anything runs. STUDY_TEST_PROGRAM: the program.
STUDY_TEST_CONFIGS: the folder."""
import json
import os
import subprocess
import tempfile
from pathlib import Path

PROGRAM, CONFIGS = os.environ["STUDY_TEST_PROGRAM"], Path(os.environ["STUDY_TEST_CONFIGS"])
MOST_RANKS = 8  # runs on any machine
# Rows of published tables, each with a row of its study.
PUBLISHED_ROWS = {"xtuner_long_sequences": 14, "internevo_memory": 16}


def check(condition, text):
    if not condition:
        raise SystemExit(f"FAILED: {text}")


def study(path, folder, *options):
    return subprocess.run([PROGRAM, "study", str(path), *options], text=True, capture_output=True, cwd=folder)


def plan_of(path, folder, *options):
    ran = study(path, folder, "--plan", "--json", *options)
    check(ran.returncode == 0, f"{path.name}: exit {ran.returncode}\n{ran.stderr}")
    return json.loads(ran.stdout)


def every_study_plans():
    # A base config names no base.
    studies = [path for path in sorted(CONFIGS.glob("*.json")) if '"base":' in path.read_text()]
    check(len(studies) >= 8, studies)
    with tempfile.TemporaryDirectory(prefix="drivetrain-studies-") as folder:
        for path in studies:
            plan = plan_of(path, folder)
            refused = [f"{cell['cell']}: {cell['reason']}" for cell in plan["cells"] if cell["verdict"] != "accepted"]
            wide = [cell["cell"] for cell in plan["cells"] if cell["world_size"] > MOST_RANKS]
            check(not refused and not wide, f"{path.name}: refused {refused}, too many ranks {wide}")
            rows = sum(not cell["noise"] for cell in plan["cells"])
            check(rows == PUBLISHED_ROWS.get(path.stem, rows), f"{path.name} has {rows} rows")
            print(f"ok {path.name}: {len(plan['cells'])} cells, {plan['runs']} runs", flush=True)
        left = list(Path(folder).iterdir())
        check(not left, f"a plan left {left}")


# A 7B on cards of 39.4 GiB: by its plan alone, which no card is needed for.
def cells_that_a_card_cannot_hold_or_that_take_too_long_are_told(folder):
    (folder / "study.json").write_text(json.dumps({
        "base": str(CONFIGS.parent / "internlm_7b.json"), "world_size": 8, "timeout_s": 600, "budget_s": 1000, "repeats": 2,
        "output_dir": str(folder / "out"), "hardware": "a100-40g-polaris",
        "set": {"device": "cuda", "data_parallel": "absent", "zero_optimization.stage": 3, "train_steps": 10,
                "train_micro_batch_size_per_gpu": 1, "train_batch_size": 8, "gradient_accumulation_steps": "absent",
                "activation_checkpointing": "full"},
        "factors": {"zero": {"key": "zero_optimization.stage", "levels": [3, 1]},
                    "steps": {"key": "train_steps", "levels": [10, 100000]}}}))
    plan = plan_of(folder / "study.json", folder)
    verdicts = {cell["cell"]: cell["verdict"] for cell in plan["cells"] if not cell["noise"]}
    wanted = {"zero=3,steps=10": "accepted", "zero=1,steps=10": "too large", "zero=3,steps=100000": "too slow",
              "zero=1,steps=100000": "too large"}
    check(verdicts == wanted, f"{verdicts}\n{plan}")
    reasons = {cell["cell"]: cell["reason"] for cell in plan["cells"]}
    check("GB a rank are planned, too much for ALCF Polaris: NVIDIA A100" in reasons["zero=1,steps=10"], reasons)
    check('"timeout_s" is 600 s' in reasons["zero=3,steps=100000"], reasons)
    check(any(line.startswith('"budget_s" is 1000 s') for line in plan["expected_failures"]), plan["expected_failures"])
    text = study(folder / "study.json", folder, "--plan").stdout
    for words in ("TOO LARGE, batch 8", "TOO SLOW, batch 8", "will be out of memory by its plan", "will not end in time"):
        check(words in text, f"not said: {words}\n{text}")


# On a machine that is said to be slow: the cells run all the same, since a plan can be wrong.
def what_will_end_badly_is_said_before_the_first_run(folder):
    (folder / "slow.json").write_text(json.dumps({
        "name": "slow", "device": "cpu", "peak_tflops": {"float32": 1e-9}, "products": {"share": 0.5},
        "attention": {"share": 0.1}, "memory": {"gb_per_s": 1, "share": 0.8, "gib": 0.00001},
        "host_link": {"gb_per_s": 2, "share": 0.5, "latency_us": 10},
        "network": {"gb_per_s": 1, "share": 0.8, "latency_us": 50},
        "pcie": {"gb_per_s": 10, "share": 0.8, "latency_us": 10}, "hosts": 1, "ranks_per_host": 2}))
    (folder / "base.json").write_text(json.dumps({
        "train_steps": 2, "threads": 1, "train_batch_size": 2, "checkpoint_policy": False, "save_final": False,
        "model": {"type": "gpt", "params": {"num_layers": 1, "hidden_size": 16, "num_attention_heads": 2,
                                            "vocab_size": 64, "max_position_embeddings": 16}},
        "dataset": {"type": "synthetic", "params": {"seq_length": 8}},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}))
    (folder / "study.json").write_text(json.dumps({
        "base": "base.json", "factors": {"seed": [1, 2]}, "repeats": 1, "warmup": 0, "noise_cell": False, "timeout_s": 900,
        "budget_s": 900, "hardware": str(folder / "slow.json"), "output_dir": str(folder / "out")}))
    ran = study(folder / "study.json", folder)
    check(ran.returncode == 0, ran.stdout + ran.stderr)
    lines = ran.stdout.splitlines()
    first_run = next((i for i, line in enumerate(lines) if "repeat 1" in line), len(lines))
    for words in ("will be out of memory by its plan", "will not end in time by its plan", '"budget_s" is 900 s'):
        at = [i for i, line in enumerate(lines) if words in line]
        check(at and at[0] < first_run, f"not said before the first run: {words}\n{ran.stdout}")


every_study_plans()
for case in (cells_that_a_card_cannot_hold_or_that_take_too_long_are_told, what_will_end_badly_is_said_before_the_first_run):
    with tempfile.TemporaryDirectory(prefix="drivetrain-studies-") as made:
        case(Path(made))
    print(f"ok {case.__name__}", flush=True)
