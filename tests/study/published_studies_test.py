"""Every study of configs/studies plans: its keys exist, every cell would run, and none but those that it says is left out.
STUDY_TEST_PROGRAM: the program. STUDY_TEST_CONFIGS: the folder."""
import json
import os
import subprocess
import tempfile
from pathlib import Path

PROGRAM, CONFIGS = os.environ["STUDY_TEST_PROGRAM"], Path(os.environ["STUDY_TEST_CONFIGS"])
MOST_RANKS = 8  # runs on any machine


def plan_of(path, folder):
    ran = subprocess.run([PROGRAM, "study", str(path), "--plan", "--json"], text=True, capture_output=True, cwd=folder)
    if ran.returncode != 0:
        raise SystemExit(f"FAILED: {path.name}: exit {ran.returncode}\n{ran.stderr}")
    return json.loads(ran.stdout)


def main():
    # A base config names no base.
    studies = [path for path in sorted(CONFIGS.glob("*.json")) if '"base":' in path.read_text()]
    assert len(studies) >= 8, studies
    with tempfile.TemporaryDirectory(prefix="drivetrain-studies-") as folder:
        for path in studies:
            plan = plan_of(path, folder)
            refused = [f"{cell['cell']}: {cell['reason']}" for cell in plan["cells"] if cell["verdict"] != "accepted"]
            wide = [cell["cell"] for cell in plan["cells"] if cell["world_size"] > MOST_RANKS]
            if refused or wide:
                raise SystemExit(f"FAILED: {path.name}: refused {refused}, too many ranks {wide}")
            print(f"ok {path.name}: {len(plan['cells'])} cells, {plan['runs']} runs", flush=True)
        left = list(Path(folder).iterdir())
        assert not left, f"a plan left {left}"


main()
