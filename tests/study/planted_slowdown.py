"""A slowdown of known size in a real run, found by a study: `planted_slowdown.py PROGRAM PLUGINS FOLDER [PERCENT]`.
PLUGINS: where the build has strategy_misdeed.so (build/release/tests/misdeeds/lib). Not a part of ctest, since it measures
time: it wants an idle machine for some minutes. A second call with the same FOLDER goes on where the first one stopped."""
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

BASE = Path(__file__).resolve().parents[2] / "configs/studies/small_gpt.json"


# Short runs: a machine drifts from minute to minute, so what is compared has to run side by side.
SHAPE = {"model.params.num_layers": 2, "model.params.hidden_size": 64, "dataset.params.seq_length": 64, "train_steps": 40}


def oversleep_ms():
    """How much longer than asked for a short sleep takes here."""
    asked, took = 0.0005, []
    for _ in range(200):
        begin = time.perf_counter()  # Waits: that is what is measured
        time.sleep(asked)  # Waits: that is what is measured
        took.append(time.perf_counter() - begin - asked)  # Waits: that is what is measured
    return 1e3 * statistics.median(took)


def step_ms(program, folder):
    changes = [word for key, value in SHAPE.items() for word in ("--set", f"{key}={value}")]
    subprocess.run([program, "launch", "-n", "1", str(BASE), *changes, "--set", f"output_dir={folder}/probe"],
                   check=True, stdout=subprocess.DEVNULL)
    steps = [json.loads(line)["step_s"] for line in (folder / "probe/metrics.jsonl").read_text().splitlines()]
    return 1e3 * statistics.median(steps[5:])


def write_study(program, plugins, folder, percent):
    step, extra = step_ms(program, folder), oversleep_ms()
    wait = step * percent / 100
    print(f"a step takes {step:.2f} ms; planted: {wait:.3f} ms, of which {extra:.3f} ms are what a sleep takes beyond its time")
    misdeed = {"type": "misdeed", "params": {"in": "step_begin", "deed": "slow", "slow_ms": 0}}
    (folder / "study.json").write_text(json.dumps({
        "base": str(BASE), "output_dir": str(folder / "study"), "figure": "p10", "trim": 0.2,
        "repeats": {"until": percent / 100, "most": 200}, "environment": {"DRIVETRAIN_PLUGIN_PATH": plugins},
        "set": {**SHAPE, "strategy": misdeed},
        "factors": {"planted": {"levels": {"nothing": {"strategy.params.slow_ms": 0},
                                           f"{percent} %": {"strategy.params.slow_ms": max(wait - extra, 0.001)}}}}}, indent=1))


def main():
    program, plugins, folder = sys.argv[1], str(Path(sys.argv[2]).resolve()), Path(sys.argv[3]).resolve()
    percent = float(sys.argv[4]) if len(sys.argv) > 4 else 3
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "study.json").exists():
        write_study(program, plugins, folder, percent)
    os.execv(program, [program, "study", str(folder / "study.json"), "--resume"])


main()
