#!/usr/bin/env python3
"""`drivetrain config schema` by an independent validator: schema_test.py PROGRAM REPO.

The schema is a schema (JSON Schema 2020-12). It takes what the program takes, configs with every default filled in and
DeepSpeed's files, and refuses keys and values that the program refuses.
"""
import json
import pathlib
import subprocess
import sys

try:
    import jsonschema
except ImportError:
    sys.exit("schema_test: the validator is missing; install the Debian package python3-jsonschema")

RUN = {"train_steps": 100, "model": {"type": "gpt", "params": {"hidden_size": 64}},
       "dataset": {"type": "synthetic", "params": {"seq_length": 32}}}
# Files whose mistakes a schema can know; the others contradict themselves, or are no JSON.
WRONG = ["typo_in_zero", "typo_at_top", "stage_4", "printed_names", "checkpoint_typo", "eps_beside_params", "batch_as_text",
         "progressive_layer_drop", "curriculum", "fractional_bucket", "max_grad_norm_in_params", "size_as_scientific_text"]
# Taken with a note, and no form that an editor should offer.
LENIENT = ["true_as_text", "stage_as_text"]


def output(*command):
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"schema_test: {' '.join(command)} ended with {run.returncode}\n{run.stderr}")
    return json.loads(run.stdout)


def problems_of(validator, config):
    return [f"{'/'.join(map(str, e.path))}: {e.message[:200]}" for e in validator.iter_errors(config)]


def main(program, repo):
    schema = output(program, "config", "schema")
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    failures = []
    configs = [c for c in sorted((repo / "configs").glob("*.json")) if c.stem not in ("known_sections", "deepspeed_keys", "foreign_files")]
    for config in configs[:8]:  # each is a process
        for problem in problems_of(validator, output(program, "config", "resolve", str(config))):
            failures.append(f"{config.name} resolved: {problem}")
    verdicts = json.loads((repo / "tests/deepspeed/verdicts.json").read_text())
    taken = 0
    for name, verdict in verdicts.items():
        try:
            config = json.loads((repo / "tests/deepspeed/files" / name).read_text(encoding="utf-8-sig"))
        except ValueError:
            continue
        stem = name.removesuffix(".json")
        problems = problems_of(validator, RUN | config) if isinstance(config, dict) else ["no object"]
        if verdict["verdict"] == "accepted" and stem not in LENIENT:
            taken += 1
            failures += [f"{name}: {problem}" for problem in problems]
        if stem in WRONG and not problems:
            failures.append(f"{name}: the schema takes it")
    if taken < 30:
        failures.append(f"only {taken} files were taken")
    sys.exit("\n".join(failures) if failures else None)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], pathlib.Path(sys.argv[2]))
