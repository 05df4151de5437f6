"""What the machine is, how fast steps are, and which kernels their time goes to."""
import contextlib
import csv
import io
import json
import re
import shutil
import statistics
import subprocess

from machine import Failed, NotRun, OutOfTime, sane

PEAK_TFLOPS = {"H100": 989, "H200": 989}  # dense bfloat16, by a part of the GPU's name
MOST_IDLE = 0.03  # of a recorded step, what may lie between its replays as far as marks show it
# name: config, what is changed, what it should reach on the GPUs above as (figure, least, unit), recorded. The floor of the 7B
# shape is for updates after four sequences: after one, the update takes a sixth of the step.
BENCHES = {
    "gpt2_124m_gpu, not recorded": ("gpt2_124m_gpu", ["capture=false"], None, False),
    "gpt2_124m_gpu": ("gpt2_124m_gpu", [], ("tokens_per_s", 400e3, "tokens/s"), True),
    "gpt2_124m_gpu, GELU in products": ("gpt2_124m_gpu", ["fused_block.gelu_fusion=true"], None, True),
    "gpt2_124m_gpu, 64 sequences": ("gpt2_124m_gpu", ["train_micro_batch_size_per_gpu=64"], None, True),
    "gpt2_124m_gpu, FlashAttention": ("gpt2_124m_gpu", ['attention={"type": "flash", "params": {"backend": "flash"}}'], None, True),
    "gpt2_124m_gpu, cuDNN": ("gpt2_124m_gpu", ['attention={"type": "flash", "params": {"backend": "cudnn"}}'], None, True),
    "gpt2_124m_gpu, optimizer on the host": (
        "gpt2_124m_gpu", ['zero_optimization={"stage": 2, "offload_optimizer": {"device": "cpu"}}', "capture=false"], None, False),
    "gpt2_124m_gpu, zero 2": ("gpt2_124m_gpu", ['zero_optimization={"stage": 2}'], None, True),
    "llama_7b_gpu": ("llama_7b_gpu", [], ("share", 55, "% of peak"), True),
    "llama_7b_gpu, 8 bits": ("llama_7b_gpu", ["bf16.enabled=false", 'fp8={"enabled": true, "recipe": "Float8CurrentScaling"}'],
                             None, True),
    "llama_7b_gpu, 8 bits, delayed scaling": ("llama_7b_gpu", ["bf16.enabled=false", 'fp8={"enabled": true}'], None, True),
    "llama_7b_gpu, 8 bits, delayed scaling, weights kept": (
        "llama_7b_gpu", ["bf16.enabled=false", 'fp8={"enabled": true, "keep_weights": true}'], None, True),
    "llama_7b_gpu, 8 bits, scales of blocks": ("llama_7b_gpu", ["bf16.enabled=false", 'fp8={"enabled": true, "recipe": "Float8BlockScaling"}'],
                                               None, True),
    "llama_7b_gpu, one sequence per update": ("llama_7b_gpu", ["train_micro_batch_size_per_gpu=1"],
                                              None, True),
}
WATCHED = {"gpt2_124m_gpu, 64 sequences"}  # each step's time and the GPU's clocks: single steps take up to 9 % longer, as clocks go
CLOCKS = ["nvidia-smi", "--query-gpu=utilization.gpu,clocks.sm,clocks.mem,power.draw,temperature.gpu", "--format=csv,noheader,nounits", "-lms", "100"]
ARCHES = {name: (90, 90) if "blocks" in name else 89 for name in BENCHES if ", 8 bits" in name}  # as Machine.wants takes them
# name: another row, what of it is told, the goal in per cent. Told and not enforced, since each is one measurement. One rank of
# ZeRO shares nothing.
BESIDE = {
    "gpt2_124m_gpu, GELU in products": ("gpt2_124m_gpu", "rate", None),
    "gpt2_124m_gpu, zero 2": ("gpt2_124m_gpu", "rate", "at least 97"),
} | {name: ("llama_7b_gpu", "time", "at most 70") for name in BENCHES if ", 8 bits" in name}
TABLES = {
    "attention, heads of 64": ["attention", "--batch", "32"],
    "attention, heads of 128": ["attention", "--heads", "32", "--head-size", "128", "--seq", "4096"],
    "kernels": ["kernels"],
}
HARDWARE_FILE = "hardware.json"
HARDWARE = ["bench", "hardware", "-n", "1", "--device", "cuda"]  # the machine as `plan --hardware` wants it


def gpu(machine):
    if not machine.gpus and not machine.dry:
        raise Failed("nvidia-smi finds no GPU")
    return "; ".join(machine.gpus) or "nvidia-smi"


def libraries(machine):
    """What the dynamic linker does not find would look like a failure of everything that follows."""
    files = [machine.there(machine.program, executable=True), *sorted((machine.tree / "lib").glob("*.so")),
             *sorted((machine.tree / "lib/drivetrain").glob("*/*.so")), *sorted((machine.tree / "tests").glob("*_test"))]
    missing = {}
    for file in files:
        for line in machine.run(f"ldd {file.name}", ["ldd", file], 60)[1].splitlines():
            name, found, what = line.strip().partition(" => ")
            if found and what.startswith("not found"):
                missing.setdefault(name, file.name)
    # LibTorch's own libraries are opened by the program before these; an MPI is on clusters that want its plugin.
    torn = {name: by for name, by in missing.items()
            if not re.match(r"lib(torch|c10|cud|cublas|nccl|nv|cuf|cus|cur|cup|mpi)", name)}
    if torn:
        raise Failed("not found: " + ", ".join(f"{name} (for {by})" for name, by in torn.items()))
    elsewhere = f"; from LibTorch and MPI: {', '.join(sorted(missing))}" if missing else ""
    return f"{len(files)} programs and libraries{elsewhere}"


def kernels_for(machine):
    library = machine.tree / "lib/libdrivetrain_kernels_cuda.so"
    machine.there(library)
    tool = shutil.which("cuobjdump") or shutil.which("/usr/local/cuda/bin/cuobjdump")
    if machine.dry:
        return "cuobjdump --list-elf"
    if not tool:
        raise NotRun("needs cuobjdump")
    found = sorted(set(re.findall(r"sm_(\d+)", machine.output("cuobjdump", [tool, "--list-elf", library], 60))), key=int)
    here = machine.arch()
    if not any(here // 10 == int(arch) // 10 and int(arch) <= here for arch in found):
        raise Failed(f"compiled for sm_{', sm_'.join(found)}; this GPU is sm_{here}")
    return "sm_" + ", sm_".join(found)


def config_of(machine, name):
    return machine.there(machine.tree / f"configs/bench/{name}.json")


def bench(machine, name, rates):
    """`rates`: of BENCHES so far in this call, in tokens/s."""
    config_name, changes, floor, recorded = BENCHES[name]
    config = config_of(machine, config_name)
    sets = [word for change in changes for word in ("--set", change)]
    if machine.dry:
        machine.output(f"config {name}", [machine.program, "config", "check", config, *sets], 120)
        return f"drivetrain bench step {config.name} --json"
    machine.wants(ARCHES.get(name, 80))
    with clocks(machine, name in WATCHED) as file:
        said = machine.answer(f"bench {name}", [machine.program, "bench", "step", config, "--json", *sets], 240)
    sane([row["loss"] for row in said["steps"]])
    peak = next((rate for part, rate in PEAK_TFLOPS.items() if part in machine.gpu), None)
    values = {"tokens_per_s": said["tokens_per_s"], "share": 100 * said["tflops"] / peak if peak else None}
    idle = said.get("device_idle_share_at_least")
    text = text_of(said, values, peak, idle) + (one_by_one(said, file.read_text()) if name in WATCHED else "") + planned(machine, name, config, sets, said)
    rates[name] = said["tokens_per_s"]
    text += compared(name, rates)
    if floor and peak and values[floor[0]] < floor[1]:
        raise Failed(f"below {floor[1]:,.0f} {floor[2]}: {text}")
    if recorded and peak and (idle is None or not idle < MOST_IDLE):
        raise Failed(f"the GPU is idle too long, or the step was not recorded: {text}")
    return text


@contextlib.contextmanager
def clocks(machine, watched):
    """The file in which nvidia-smi writes, ten times a second, what the GPU says of itself meanwhile."""
    file = machine.logs / "clocks.csv"
    if not watched:
        yield file
        return
    with file.open("w") as out, subprocess.Popen(CLOCKS, stdout=out, stderr=subprocess.DEVNULL) as smi:
        try:
            yield file
        finally:
            smi.terminate()


def one_by_one(said, clocks):
    """Steps as they came, and the GPU's state while it was busy."""
    text = "; steps " + ", ".join(f"{1e3 * row['step_s']:.1f}" for row in said["steps"]) + " ms"
    rows = [[float(cell) for cell in line.split(",")] for line in clocks.splitlines() if re.fullmatch(r"[\d., ]+", line)]
    columns = zip(*(row[1:] for row in rows if row[0] >= 50))
    for what, values in zip(("multiprocessors, MHz", "memory, MHz", "power, W", "temperature, C"), columns):
        text += f"; {what}: {min(values):.0f} to {max(values):.0f}, median {statistics.median(values):.0f}"
    return text if any(row[0] >= 50 for row in rows) else text + "; nvidia-smi told no clocks of a busy GPU"


def compared(name, rates):
    if name not in BESIDE:
        return ""
    beside, what, goal = BESIDE[name]
    if beside not in rates:
        return f"; not compared: {beside} was not measured in this call"
    share = rates[name] / rates[beside] if what == "rate" else rates[beside] / rates[name]
    return f"; {100 * share:.1f} % of the {what} of {beside}" + (f" (goal: {goal})" if goal else "")


def planned(machine, name, config, sets, said):
    """What `plan` says of the step, with the machine as `bench hardware` has just measured it."""
    file = machine.logs.parent / HARDWARE_FILE
    if not file.is_file():
        return f"; not planned: no {HARDWARE_FILE}"
    command = [machine.program, "plan", config, "-n", "1", "--hardware", file, "--json", *sets]
    try:
        forecast = machine.answer(f"plan {name}", command, 60)["forecast"]
        step, memory, host = forecast["time"]["seconds"], *(forecast["memory_gib"][k] * 2**30 for k in ("together", "on_host"))
    except (Failed, OutOfTime, KeyError) as e:  # the measured figures are there
        return f"; not planned: {type(e).__name__} {e}"
    return (f"; planned {step:.4g} s ({100 * (step / said['step_s']['median'] - 1):+.1f} %), {memory / 1e9:.1f} GB "
            f"({100 * (memory / said['peak_memory_bytes'] - 1):+.1f} %)" + (f", {host / 1e9:.1f} GB on the host" if host else ""))


def text_of(said, values, peak, idle):
    phases = ", ".join(f"{phase} {entry['median'] if isinstance(entry, dict) else entry:.4g} s"
                       for phase, entry in said["phases_s"].items() if isinstance(entry, (dict, float)))
    run = said["run"]
    return (f"{run['layers']} layers, {said['tokens_per_s']:,.0f} tokens/s, {said['tflops']:.1f} TFLOP/s"
            + (f" ({values['share']:.1f} % of {peak})" if peak else "") + f", step {said['step_s']['median']:.4g} s ({phases}), "
            + (f"GPU at least {100 * idle:.1f} % idle between replays" if idle is not None else "not recorded")
            + f", peak {said['peak_memory_bytes'] / 1e9:.1f} GB" + ("" if said["machine"]["idle"] else ", processors NOT IDLE"))


def table(machine, name):
    command = [machine.program, "bench", *TABLES[name], "--device", "cuda", "--dtype", "bf16"]
    if machine.dry:
        return " ".join(str(word) for word in command[1:])
    rows = [line.strip() for line in machine.output(f"bench {name}", command, 120).splitlines() if re.search(r"\d", line)]
    return "; ".join(re.sub(r"\s{2,}", ", ", row) for row in rows)[:1500]


def hardware(machine):
    file = machine.logs.parent / HARDWARE_FILE
    if machine.dry:
        return " ".join(HARDWARE)
    file.unlink(missing_ok=True)  # another machine's, perhaps
    machine.output("bench hardware", [machine.program, *HARDWARE, "--output", file], 120)
    said = json.loads(file.read_text())
    return "; ".join(f"{key} {said[key]}" for key in ("peak_tflops", "products", "attention", "memory", "pcie", "overheads") if key in said)


def peer(machine, name):
    config = config_of(machine, name)
    script = machine.there(machine.tree / "tools/bench/side_by_side")
    program = machine.there(machine.tree / "tools/bench/peer_pytorch.py")
    command = [machine.python, script, config, "--compiled", "--rounds", "1", "--json", "--python", machine.python, "--program",
               machine.program]
    if machine.dry:
        for file in (script, program):
            compile(file.read_text(), str(file), "exec")
        return " ".join(str(word) for word in command[1:])
    rows = machine.answer(f"peer {name}", command, 420)["rows"]
    return "; ".join(f"{r['ratio']:.3f} ({r['ratio_min']:.3f}-{r['ratio_max']:.3f}) of {r['peer']}'s {r['theirs_s']:.4g} s, memory "
                     f"{r['memory_ratio']:.2f}, losses within {r['loss_difference']:.0e}" for r in rows)


def profile(machine, name):
    """Kernels of one step that is not recorded, by time. Names show the libraries' choices."""
    config = config_of(machine, name)
    tool = shutil.which("ncu") or shutil.which("/usr/local/cuda/bin/ncu")
    if machine.dry:
        return "ncu drivetrain train CONFIG"
    if not tool:
        raise NotRun("needs ncu (Nsight Compute)")
    command = [tool, "--clock-control", "none", "--metrics", "gpu__time_duration.sum,dram__bytes.sum", "--csv", "--target-processes",
               "all", machine.program, "train", config, "--set", "capture=false", "--set", "train_steps=2", "--set",
               f"output_dir={machine.logs / ('profile_' + name)}"]
    code, out, err = machine.run(f"profile {name}", command, 420)
    if "ERR_NVGPUCTRPERM" in out + err:
        raise NotRun("needs the permission to read the GPU's counters")
    if code:
        raise Failed(f"exit {code}: {(err or out).strip()[-300:]}")
    return by_time(out)


def by_time(output):
    lines = output.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if begin is None:
        raise Failed("ncu printed no table")
    spent, bytes_moved, calls = {}, {}, {}
    for row in csv.DictReader(io.StringIO("\n".join(lines[begin:]))):
        if not row.get("Metric Value"):
            continue
        kernel = re.sub(r"<.*|\(.*|void |\w+::", "", row["Kernel Name"])[:60] or row["Kernel Name"][:60]
        value = float(row["Metric Value"].replace(",", ""))
        unit = row["Metric Unit"]
        if row["Metric Name"].startswith("gpu__time"):
            spent[kernel] = spent.get(kernel, 0) + value * {"ns": 1e-6, "us": 1e-3, "usecond": 1e-3, "ms": 1}.get(unit, 1e-6)
            calls[kernel] = calls.get(kernel, 0) + 1
        else:
            scale = {"byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}.get(unit, 1)
            bytes_moved[kernel] = bytes_moved.get(kernel, 0) + value * scale
    total = sum(spent.values())
    if not total:
        raise Failed("ncu timed no kernel")
    top = sorted(spent, key=spent.get, reverse=True)[:25]
    return f"{total:.2f} ms in {sum(calls.values())} kernels (two steps): " + "; ".join(
        f"{kernel} {100 * spent[kernel] / total:.1f} % in {calls[kernel]}, {bytes_moved.get(kernel, 0) / spent[kernel] / 1e6:.0f} GB/s"
        for kernel in top)
