"""What the comparisons share: one training run as a config, with its weights and tokens in a folder, run by our program or by a
peer's script on the same numbers. Imported by side_by_side, strategies and collectives_side_by_side; Python's standard library only.

What cannot be compared or fails ends the process with one message.
"""
import contextlib
import json
import math
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

TOOLS = pathlib.Path(__file__).resolve().parent
REPO = TOOLS.parents[1]
PROGRAM = REPO / "build/release/bin/drivetrain"
CONFIGS = [REPO / "configs/bench" / f"{name}.json" for name in ("gpt2_124m_b4_t64", "gpt2_124m_b1_t1024")]


signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as an exception, so that nothing that was started stays behind


def stop(message):
    sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {message}")


def read_config(path):
    """Our JSON has comments."""
    text = re.sub(r'("(?:[^"\\]|\\.)*")|//[^\n]*', lambda m: m.group(1) or "", pathlib.Path(path).read_text())
    return json.loads(text)


def options(section):
    return section.get("params", section)


def named(section):
    """Name in lower case and options of a plugin's section; none where it is off."""
    if isinstance(section, str):
        return section.lower(), {}
    if not section or section.get("enabled") is False:
        return None, {}
    given = {key: value for key, value in options(section).items() if key not in ("type", "enabled", "params")}
    return str(section.get("type", "")).lower(), given


ADAM = {"lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0}  # our defaults
ADAM_FIXED = {"decay": "matrices", "bias_correction": True, "adam_w_mode": True, "amsgrad": False, "fp32_optimizer_states": True,
              "torch_adam": None}  # what else may be given; None: anything


def adam_of(config):
    """What AdamW is given on both sides."""
    name, given = named(config.get("optimizer", "adamw"))
    if name not in ("adamw", "adam"):
        raise ValueError(f"optimizer {name or 'without a type'}; wanted AdamW")
    for key, value in given.items():
        free = key in ADAM or ADAM_FIXED.get(key, value) is None or (name == "adamw" and key == "adam_w_mode")
        if not free and (key not in ADAM_FIXED or value != ADAM_FIXED[key]):
            raise ValueError(f"optimizer option {key} = {value}")
    return {key: given.get(key, default) for key, default in ADAM.items()}


def refuse_what_the_peer_cannot(config):
    scheduler, _ = named(config.get("scheduler", config.get("lr_schedule")))
    if scheduler not in (None, "constant"):
        raise ValueError(f"scheduler {scheduler}; wanted none or constant")
    if config.get("gradient_accumulation_steps", 1) != 1 or "train_micro_batch_size_per_gpu" not in config:
        raise ValueError("accumulation; wanted train_micro_batch_size_per_gpu and gradient_accumulation_steps 1")
    if (config.get("fp16") or {}).get("enabled"):
        raise ValueError("fp16; wanted float32 or bf16")
    for key, value in named(config["model"])[1].items():
        if "dropout" in key and value:
            raise ValueError(f"model option {key} = {value}; wanted 0")


def write_tokens(path, steps, batch, length, vocabulary):
    draw = random.Random(1).randrange
    data = struct.pack(f"<{steps * batch * (length + 1)}q", *(draw(vocabulary) for _ in range(steps * batch * (length + 1))))
    header = json.dumps({"tokens": {"dtype": "I64", "shape": [steps, 1, batch, length + 1], "data_offsets": [0, len(data)]}})
    header += " " * (-len(header) % 8)
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(header)) + header.encode() + data)


def run(command, what, env=None):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=env)
    if done.returncode:
        sys.stderr.write(done.stderr)
        stop(f"{what} failed with {done.returncode}; it said what stands above")
    return done.stdout


def loss_difference(losses, others):
    """Largest difference of two runs' losses, of the others' value. Infinite where a loss is no number: max() would not see a NaN."""
    pairs = list(zip(losses, others, strict=True))
    if not all(math.isfinite(loss) for pair in pairs for loss in pair):
        return math.inf
    return max(abs(a - b) / abs(b) if b else (math.inf if a else 0.0) for a, b in pairs)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def first_to_fail(processes):
    """Waits for all; the number of one that failed as soon as there is one, since the others may wait for it for ever."""
    while True:
        codes = [process.poll() for process in processes]
        failed = [number for number, code in enumerate(codes) if code]
        if failed or None not in codes:
            return failed[0] if failed else None
        time.sleep(0.02)


def end_all(processes):
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.wait()


def run_ranks(command, processes, what):
    """Rank 0's objects, one a line, of a script that reads torch.distributed's variables. Alone it has none of them."""
    alone = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")}
    command = [str(word) for word in command]

    def env(rank):
        return dict(alone, RANK=str(rank), LOCAL_RANK=str(rank), **shared) if processes > 1 else alone

    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes)}
    with contextlib.ExitStack() as files:
        said = [files.enter_context(tempfile.TemporaryFile("w+")) for _ in range(processes)]
        told = files.enter_context(tempfile.TemporaryFile("w+"))
        ranks = []
        files.callback(lambda: end_all(ranks))  # whatever ends this
        for rank, file in enumerate(said):
            ranks.append(subprocess.Popen(command, env=env(rank), stdout=subprocess.DEVNULL if rank else told, stderr=file))
        failed = first_to_fail(ranks)
        if failed is not None:
            end_all(ranks)
            said[failed].seek(0)
            sys.stderr.write(said[failed].read())
            of = f"rank {failed} of {what}" if processes > 1 else what
            stop(f"{of} failed with {ranks[failed].returncode}; it said what stands above")
        told.seek(0)
        text = told.read()
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]  # some libraries log to stdout


def find_python(given):
    if given:
        return given
    here = subprocess.run([sys.executable, "-c", "import torch"], capture_output=True)
    if here.returncode == 0:
        return sys.executable
    folder = run([REPO / "tools/setup/deps", "peers"], "tools/setup/deps peers").splitlines()[-1]
    return f"{folder}/bin/python"


class Workload:
    """One config for one number of processes. Files are made in `folder`; a model that is there already is taken."""

    def __init__(self, path, folder, program, processes, steps, warmup):
        self.folder, self.program, self.processes, self.steps = folder, program, processes, steps
        self.config = read_config(path)
        try:
            refuse_what_the_peer_cannot(self.config)
            self.adam = adam_of(self.config)
        except ValueError as e:
            stop(f"{path}: peer_pytorch.py has no {e}")
        self.device = self.config.get("device", "cpu")
        half = any((self.config.get(key) or {}).get("enabled") for key in ("bf16", "bfloat16"))
        self.dtype = "bfloat16" if half else "float32"
        self.batch, self.length = self.config["train_micro_batch_size_per_gpu"], options(self.config["dataset"])["seq_length"]
        self.clip = self.config.get("gradient_clipping", 1.0)
        self.warmup = warmup if warmup is not None else 2 if self.device == "cpu" else 6
        self.all_steps = steps + self.warmup
        self.name = f"{pathlib.Path(path).stem}, {processes} process{'es' if processes > 1 else ''}"
        self.tokens, self.ours_json = folder / f"tokens_{processes}.safetensors", folder / f"ours_{processes}.json"
        more = 0 if self.device == "cpu" else 3  # `bench step` watches further steps on a device
        write_tokens(self.tokens, self.all_steps + more, self.batch * processes, self.length, options(self.config["model"])["vocab_size"])
        if not (folder / "model").exists():
            self.export()
        settings = dict(self.config, model={"type": "gpt", "params": {"from": str(folder / "model")}},
                        dataset={"type": "token_batches", "params": {"file": str(self.tokens)}})
        self.ours_json.write_text(json.dumps(settings))

    def export(self):
        """A Hugging Face folder of the initial weights: one step on the CPU that changes nothing and keeps no moments."""
        settings = dict(self.config, device="cpu", train_steps=1, train_micro_batch_size_per_gpu=1, save_final=True,
                        output_dir=str(self.folder / "run"), optimizer={"type": "SGD", "params": {"lr": 0.0}},
                        dataset={"type": "synthetic", "params": {"seq_length": 8}})
        settings.pop("bf16", None), settings.pop("bfloat16", None)
        (self.folder / "export.json").write_text(json.dumps(settings))
        run([self.program, "train", self.folder / "export.json"], "our export of the initial weights")
        (self.folder / "run" / "final").rename(self.folder / "model")
        shutil.rmtree(self.folder / "run")

    def ours(self, settings, what="ours"):
        """What `bench step` says, with `--set` of every setting."""
        command = [self.program] + (["bench", "step"] if self.processes == 1 else ["launch", "-n", self.processes, "--bench", "step"])
        command += [self.ours_json, "--json", "--steps", self.steps, "--warmup", self.warmup]
        for setting in settings:
            command += ["--set", setting]
        return json.loads(run(command, what))

    def peer(self, python, script, more, what):
        """One object per step of a script that takes peer_pytorch.py's options."""
        command = [python, TOOLS / script, "--model", self.folder / "model", "--batches", self.tokens, "--steps", self.all_steps,
                   "--device", self.device, "--dtype", self.dtype, "--lr", self.adam["lr"], "--betas", *self.adam["betas"],
                   "--eps", self.adam["eps"], "--weight-decay", self.adam["weight_decay"], "--clip", self.clip, *more]
        return run_ranks(command, self.processes, what)
