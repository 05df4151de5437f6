"""Compares the steps of a run with DeepSpeed's own curve of a golden case: same_curve.py METRICS.jsonl CASE_FOLDER FIRST LAST
Every step from FIRST to LAST has to be there, within the case's tolerance. Ends with 1 and a line where one is not."""
import json
import pathlib
import sys


def main():
    path, case = sys.argv[1], pathlib.Path(sys.argv[2])
    first, last = int(sys.argv[3]), int(sys.argv[4])
    curve = json.loads((case / "curve.json").read_text())
    theirs, tolerance = curve["deepspeed"], curve["tolerance"]
    ours = {row["step"]: row for row in map(json.loads, pathlib.Path(path).read_text().splitlines())}
    worst = 0.0
    for step in range(first, last + 1):
        if step not in ours:
            sys.exit(f"{path}: step {step} is missing")
        loss, norm, lr = (theirs[key][step - 1] for key in ("loss", "grad_norm", "lr"))
        shares = {"loss": abs(ours[step]["loss"] - loss) / tolerance["loss_abs"],
                  "grad_norm": abs(ours[step]["grad_norm"] - norm) / (tolerance["grad_norm_rel"] * norm),
                  "lr": abs(ours[step]["lr"] - lr) / (1e-12 * abs(lr) + 1e-30)}
        worst = max(worst, *shares.values())
        for key, share in shares.items():
            if share > 1:
                sys.exit(f"{path}: step {step}: {key} is {ours[step][key]!r}, DeepSpeed has {theirs[key][step - 1]!r}")
    print(f"   steps {first} to {last} are on DeepSpeed's curve: {worst:.2g} of what is allowed")


if __name__ == "__main__":
    main()
