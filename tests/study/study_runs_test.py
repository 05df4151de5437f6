"""Whole studies of tiny runs: every way in which a cell ends, kill -9 and going on, Ctrl-C, changed files, compare.
STUDY_TEST_PROGRAM: the program. One launch of a tiny run takes about a second, and three studies run at a time."""
import concurrent.futures
import contextlib
import csv
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from tiny_run import BASE
from waiting import DEADLINE_S, NO_TIMEOUT, eventually, let_pass, scaled

PROGRAM = os.environ["STUDY_TEST_PROGRAM"]


def check(condition, text):
    if not condition:
        raise SystemExit(f"FAILED: {text}")


class Study:
    """A study file in a folder of its own."""

    def __init__(self, folder, **keys):
        self.folder, self.output = folder, folder / "out"
        folder.mkdir(parents=True)
        (folder / "base.json").write_text(json.dumps(BASE))
        self.keys = {"base": "base.json", "output_dir": str(self.output), "repeats": 1, "warmup": 1, "noise_cell": False,
                     "timeout_s": DEADLINE_S, **keys}
        self.write()

    def write(self):
        (self.folder / "study.json").write_text(json.dumps(self.keys))

    def command(self, *options):
        return [PROGRAM, "study", str(self.folder / "study.json"), *options]

    def run(self, *options, code=0, says=()):
        ran = subprocess.run(self.command(*options), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        check(ran.returncode == code, f"exit {ran.returncode}, wanted {code}: {options}\n{ran.stdout}")
        for part in says:
            check(part in ran.stdout, f"not said: {part}\n{ran.stdout}")
        return ran.stdout

    def events(self, name):
        ledger = self.output / "ledger.jsonl"
        text = ledger.read_text() if ledger.exists() else ""
        texts = text[:text.rfind("\n") + 1].splitlines()  # not the one that is perhaps being written
        whole = [text for text, after in zip(texts, texts[1:] + [""]) if not after.startswith('{"event":"cut"')]
        lines = [json.loads(line) for line in whole]
        return [line for line in lines if line["event"] == name]

    def states(self):
        return {(end["cell"], end["block"]): end["state"] for end in self.events("end")}


def ranks_of(cell):
    """Pids of the ranks of a cell that runs, by their command lines."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
        except OSError:
            continue
        if b"train" in words and any(f"/runs/{cell}/".encode() in word for word in words):
            found.append(int(entry.name))
    return found


def signal_ranks(study, signals):
    """Sends a signal to a rank of each of these cells, once it has made a step."""
    for cell, number in signals.items():
        metrics = study.output / f"runs/{cell}/1/run/metrics.jsonl"
        made_a_step = lambda: metrics.exists() and metrics.stat().st_size > 0 and ranks_of(cell)
        if eventually(made_a_step, within_s=NO_TIMEOUT):  # other cells run before it
            os.kill(ranks_of(cell)[0], number)


ENDLESS = {"train_steps": 10000000}


def too_late(folder):
    """Those that the others in every_end must not be, however slow the machine is."""
    study = Study(folder, timeout_s=scaled(4), factors={"end": {"levels": {"timeout": ENDLESS, "hangs": ENDLESS}}})
    threading.Thread(target=signal_ranks, daemon=True, args=(study, {"end=hangs": signal.SIGSTOP})).start()
    study.run()
    check(list(study.states().values()) == ["timeout"] * 2, study.states())
    check("timeout" in (study.output / "report.html").read_text(), "the page does not tell it")


def every_end(folder):
    study = Study(folder, reference={"end": "ok"}, gate=0.001, memory_limit_bytes=2 << 30, factors={"end": {"levels": {
        "ok": {}, "refused": {"tensor_parallel.size": 3}, "nan": {"optimizer.params.lr": 1e30},
        "crashed": ENDLESS, "wrong": {"seed": 7},
        "oom": {"model.params.hidden_size": 3072, "model.params.num_layers": 4}}}})
    threading.Thread(target=signal_ranks, daemon=True, args=(study, {"end=crashed": signal.SIGKILL})).start()
    study.run()
    states = {cell.removeprefix("end="): state for (cell, _), state in study.states().items()}
    wanted = {"ok": "ok", "refused": "refused", "nan": "nan", "wrong": "ok", "crashed": "crashed", "oom": "oom"}
    check(states == wanted, states)
    ends = {end["cell"].removeprefix("end="): end for end in study.events("end")}
    check(ends["crashed"]["signal"] == signal.SIGKILL and ends["crashed"]["rank"] == 0, ends["crashed"])
    check(ends["oom"]["phase"] and "memory" in ends["oom"]["reason"], ends["oom"])
    shares = ends["ok"]["part_shares"]
    check(abs(sum(shares.values()) - 1) < 1e-9 and shares["forward"] > 0 and shares["update"] > 0, shares)
    check(ends["ok"]["communication_share"] == 0, "one rank has nobody to talk to")
    report = json.loads((study.output / "report.json").read_text())
    gates = {cell["cell"]: cell["gate"] for cell in report["cells"]}
    check(gates["end=wrong"] == "failed" and report["ranking"] == ["end=ok"], report["ranking"])
    run = report["cells"][0]["runs"][0]
    check(run["began"].startswith("20") and run["began"] <= run["ended"], run)
    page = (study.output / "report.html").read_text()
    for part in ("tensor_parallel.size=3", "Not ranked", "loss not finite", "out of memory (", "signal 9",
                 "Shares of a step", "Where a step's time goes"):
        check(part in page, part)
    check("<script src" not in page and "<link" not in page, "the page is not whole in itself")


def on_a_terminal(folder):
    study = Study(folder, repeats=2, factors={"seed": [1, 2]})
    master, slave = pty.openpty()
    with subprocess.Popen(study.command(), stdin=slave, stdout=slave, stderr=slave,
                          env={**os.environ, "TERM": "xterm"}) as process:
        os.close(slave)
        shown = b""
        with contextlib.suppress(OSError):  # the other side is closed
            while part := os.read(master, 65536):
                shown += part
    check(process.returncode == 0, shown.decode())
    text = shown.decode()
    for part in ("\x1b[", "2 of 4 runs", "cells  ", "seed=2  repeat 2  step", "left"):
        check(part in text, f"not shown: {part!r}\n{text!r}")
    check(text.endswith("\x1b[J"), f"what was drawn stays: {text[-300:]!r}")
    plain = study.run("--resume")
    check("\x1b" not in plain, f"escapes in a file: {plain!r}")


def disk_full(folder):
    """A file system of its own with little room; without the right to mount one there is nothing to try."""
    study = Study(folder, repeats=8, factors={"seed": [1, 2]})
    study.output.mkdir()
    script = (f"mount -t tmpfs -o size=160k tmpfs {study.output} && {{ {PROGRAM} study {folder}/study.json; code=$?; "
              f"cat {study.output}/ledger.jsonl > {folder}/ledger; exit $code; }}")
    ran = subprocess.run(["unshare", "-rm", "sh", "-c", script], text=True, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT)
    if "mount" in ran.stdout or "unshare" in ran.stdout:
        return print(f"disk_full: no file system of its own is allowed here: {ran.stdout.strip()}")
    check(ran.returncode == 8 and "--resume" in ran.stdout, f"{ran.returncode} {ran.stdout}")
    for line in (folder / "ledger").read_text().splitlines()[:-1]:
        json.loads(line)


def killed_and_resumed(folder):
    study = Study(folder, repeats=2, factors={"zero_optimization.stage": [0, 1]})
    with subprocess.Popen(study.command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        begun = eventually(lambda: len(study.events("start")) >= 2)
        process.send_signal(signal.SIGSTOP)  # so that it does not end before the second one looks
        second = subprocess.run(study.command("--resume"), text=True, capture_output=True)
        process.kill()
    check(begun, "no run began")
    check(second.returncode == 2 and "another process is at work" in second.stderr, second.stderr)
    before = (study.output / "ledger.jsonl").read_bytes()
    with open(study.output / "ledger.jsonl", "ab") as ledger:
        ledger.write(b'{"event":"end","run":"12')  # as a crash in the middle of a line leaves it
    study.run(code=2, says=["of the ledger is cut", "holds a study already", "--resume"])
    study.run("--resume", says=["goes on", "report.html"])
    check((study.output / "ledger.jsonl").read_bytes().startswith(before), "the ledger was not only added to")
    check(len(study.states()) == 4 and set(study.states().values()) == {"ok"}, study.states())
    ends = [end["run"] for end in study.events("end")]
    check(len(ends) == len(set(ends)), "a run was done twice")
    study.run("--resume")
    check([end["run"] for end in study.events("end")] == ends, "a whole study ran again")
    study.keys["repeats"] = 3
    study.write()
    study.run("--resume", code=2, says=["another one now", "repeats: 2 when it began, 3 now"])


def rows_of(study):
    with open(study.output / "runs.csv", newline="") as file:
        return list(csv.DictReader(file))


def grown(folder):
    """A study by its loss, whose outcome is corrected and which grows."""
    keys = {"outcome": {"metric": "los", "window": 2, "better": "lower"}, "seed_per_repeat": True, "repeats": 1,
            "factors": {"lr": {"key": "optimizer.params.lr", "levels": [0.001, 0.002]}}}
    study = Study(folder / "a", **keys)
    study.run(code=2, says=["the outcome los, mean of 2 is not in the reference's run", 'did you mean "loss"', "--grow"])
    first = study.events("end")
    study.keys["outcome"]["metric"] = "loss"
    study.keys["repeats"] = 2
    study.write()
    study.run("--resume", code=2, says=["outcome.metric", "repeats: 1 when it began, 2 now"])
    study.run("--grow", says=["the study grows: 0 further cells, 2 repeats"])
    before = (study.output / "ledger.jsonl").read_bytes()
    study.keys["factors"]["lr"]["levels"].insert(1, 0.003)
    study.write()
    study.run("--grow", says=["the study grows: 1 further cells"])
    check((study.output / "ledger.jsonl").read_bytes().startswith(before), "the ledger was not only added to")
    ends = study.events("end")
    check(ends[:len(first)] == first and len(ends) == 6, "what had run ran again")
    check(all(end["seed"] == 1 + end["block"] for end in ends), ends)
    report = json.loads((study.output / "report.json").read_text())
    check([cell["cell"] for cell in report["cells"]] == ["lr=0.001", "lr=0.003", "lr=0.002"], report["cells"])
    check(report["ranked_by"] == "loss, mean of 2" and len(report["ranking"]) == 3, report)
    rows = rows_of(study)
    check(len(rows) == 6 and {row["lr"] for row in rows} == {"0.001", "0.003", "0.002"}, rows)
    check(all(float(row["loss_mean_of_2"]) > 0 for row in rows), rows)
    study.run("--resume")
    check(study.events("end") == ends, "a whole study ran again")
    (study.folder / "base.json").write_text(json.dumps({**BASE, "train_steps": 5}))
    study.run("--grow", code=2, says=["cannot grow", "base: the file's content is another one"])
    (study.folder / "base.json").write_text(json.dumps(BASE))


def told_by(output):
    """What the files of a report say of anything but time, memory and the machine's load."""
    with open(output / "runs.csv", newline="") as file:
        runs = sorted([row[key] for key in ("cell", "lr", "repeat", "seed", "state", "counts", "loss")]
                      for row in csv.DictReader(file))
    lines = [line for line in (output / "report.md").read_text().splitlines() if not line.startswith("- Load: ")]
    words = [line.rsplit("|", 4)[0] if line.startswith("|") else line for line in lines]  # without TGS and memory
    return runs, words, json.loads((output / "report.json").read_text())["ranking"]


def of_many_pieces(folder):
    """Stopped by SIGKILL, grown by two repeats and a level, merged with one from another folder: as one that ran in one go."""
    levels = [0.001, 0.003, 0.002]
    keys = lambda own: {"outcome": {"metric": "loss", "better": "lower"}, "seed_per_repeat": True,
                        "factors": {"lr": {"key": "optimizer.params.lr", "levels": own}}}
    whole = Study(folder / "whole", repeats=4, **keys(levels))
    whole.run()
    first = Study(folder / "a", repeats=1, **keys([0.001, 0.002]))
    with subprocess.Popen(first.command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        begun = eventually(lambda: first.events("start"))
        process.kill()
    check(begun, "no run began")
    first.run("--resume")
    first.keys |= {"repeats": 3, **keys(levels)}
    first.write()
    first.run("--grow", says=["the study grows: 1 further cells, 3 repeats"])
    last = Study(folder / "b", repeats=1, seed=4, **keys(levels))
    last.run()
    merge = [PROGRAM, "study", "merge", str(first.output), str(last.output), "--into", str(folder / "c")]
    said = subprocess.run(merge, text=True, capture_output=True)
    check(said.returncode == 0 and "9 and 3 runs are one study of 4 repeats" in said.stdout, said.stdout + said.stderr)
    check(told_by(folder / "c") == told_by(whole.output), f"{told_by(folder / 'c')}\n{told_by(whole.output)}")
    said = subprocess.run(merge, text=True, capture_output=True)
    check(said.returncode == 2 and "nothing is overwritten" in said.stderr, said.stderr)


def live(folder):
    """After its first run the study has a page, which a browser loads again until the study has ended."""
    study = Study(folder, factors={"live": {"levels": {"a": ENDLESS, "b": ENDLESS}}})
    page, again = study.output / "report.html", "http-equiv=refresh"
    end_a_run = lambda cells: eventually(lambda: any(map(ranks_of, cells))) and [
        os.kill(rank, signal.SIGKILL) for cell in cells for rank in ranks_of(cell)]
    with subprocess.Popen(study.command("--live"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        check(end_a_run(["live=a", "live=b"]), "no run")
        check(eventually(lambda: page.exists() or process.poll() is not None), "no page")
        text = page.read_text()
        check(end_a_run({"live=a", "live=b"} - {end["cell"] for end in study.events("end")}), "no second run")
    check(again in text and "The study runs." in text and "1 of 2 runs have ended" in text, text[:2000])
    check(again not in page.read_text() and "2 of 2 runs have ended" in page.read_text(), "it loads itself for ever")
    study.run("--live", "--plan", code=2, says=["--live goes with a study's file"])


def disturbed(folder):
    """A run whose line says more load than is allowed comes again, in a folder of its own; all of the host is allowed here,
    so that this machine's own load decides nothing."""
    study = Study(folder, allow_load=1, factors={"seed": [1, 2]}, gate=False)
    study.run()
    ends = study.events("end")
    check(all(0 <= end["load"]["others"] <= 1 and end["load"]["average"] >= 0 for end in ends), ends)
    ledger = study.output / "ledger.jsonl"
    lines = [json.loads(line) for line in ledger.read_text().splitlines()]
    busy = next(line for line in lines if line["event"] == "end" and line["cell"] == "seed=2")
    busy["load"]["others"] = 1.5
    before = "".join(json.dumps(line) + "\n" for line in lines)
    ledger.write_text(before)
    study.run("--resume", says=["goes on: 1 of 2 runs are done"])
    check(ledger.read_text().startswith(before) and len(study.events("end")) == 3, "not one run came again")
    folders = {end["folder"] for end in study.events("end")}
    check(len(folders) == 3 and all(Path(folder).exists() for folder in folders), folders)
    counts = sorted((row["seed"] or row["cell"], row["counts"]) for row in rows_of(study))
    check([count for _, count in counts].count("no") == 1 and len(counts) == 3, counts)
    check("1 run under load left out of all figures" in (study.output / "report.md").read_text(), "it is not told")
    study.run("--resume")
    check(len(study.events("end")) == 3, "a whole study ran again")


def slots_of_this_machine(count):
    """None where there are too few cores: then nothing can run side by side."""
    return {"slots": count} if len(os.sched_getaffinity(0)) >= count else None


def side_by_side(folder):
    """Two slots: every run in one, none beside another one of its slot; killed and resumed; the same losses as one by one."""
    keys = {"repeats": 2, "gate": False, "seed_per_repeat": True, "outcome": {"metric": "loss", "better": "lower"},
            "factors": {"lr": {"key": "optimizer.params.lr", "levels": [0.001, 0.002]}, "accumulation": {
                "key": "gradient_accumulation_steps", "levels": [1, 2]}}}
    alone = Study(folder / "alone", **keys)
    many = Study(folder / "many", **keys, dispatch={"slots": 4096})
    many.run(code=2, says=['"dispatch"', "slots"])
    check(not many.output.exists(), "a study that is refused left a folder")
    if not slots_of_this_machine(2):
        return print("side_by_side: one core is no two slots")
    alone.run()
    study = Study(folder / "slots", **keys, dispatch={"slots": 2})
    with subprocess.Popen(study.command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        begun = eventually(lambda: len(study.events("start")) >= 4)
        process.kill()
    check(begun and len(study.states()) < 8, "it was not killed amid its runs")
    study.run("--resume", says=["runs side by side: slot 1: cores", "goes on"])
    check(len(study.states()) == 8 and set(study.states().values()) == {"ok"}, study.states())
    ends = study.events("end")
    check(len({end["run"] for end in ends}) == len(ends), "a run was done twice")
    cores = {end["slot"]: end["cores"] for end in ends}
    check(sorted(cores) == [1, 2] and cores[1] != cores[2], cores)
    starts = [(start["cell"], start["block"], start["slot"]) for start in study.events("start")]  # also of those cut off
    for end in ends:
        for other in end["beside"]:
            slots = {slot for cell, block, slot in starts if (cell, block) == (other["cell"], other["block"])}
            check(slots - {end["slot"]}, f"{end['run']} ran beside {other} in one slot")
    check(any(end["beside"] for end in ends), "nothing ran side by side")
    values = [[(row["cell"], row["repeat"], row["loss"]) for row in rows_of(one)] for one in (alone, study)]
    check(values[0] == values[1], values)
    report = json.loads((study.output / "report.json").read_text())
    check(report["ranking"] == json.loads((alone.output / "report.json").read_text())["ranking"], report["ranking"])
    check("What ran beside what" in (study.output / "report.html").read_text(), "the page does not tell it")
    study.keys["dispatch"] = {"slots": 1}
    study.write()
    study.run("--grow", code=2, says=["cannot grow", "dispatch.slots: 2 when it began, 1 now"])


def stopped_early(folder):
    """A cell whose steps are far too large cannot win by its loss: it has three repeats, and the fourth when the rule is taken back."""
    study = Study(folder, repeats=4, seed_per_repeat=True, outcome={"metric": "loss", "better": "lower"},
                  early_stop={"after": 3, "level": 0.2}, set={"train_steps": 30},
                  factors={"lr": {"key": "optimizer.params.lr", "levels": [0.001, 1.0]}})
    study.run(says=["lr=1.0 stops after 3 repeats: it cannot win against lr=0.001"])
    check(len(study.states()) == 7 and ("lr=1.0", 3) not in study.states(), study.states())
    report = (study.output / "report.md").read_text()
    for part in ("Stopped early: lr 1.0 after 3 repeats", "2, stopped", "7 of 7 runs have ended", "at 20 % over all rivals"):
        check(part in report, f"{part}\n{report}")
    study.run("--resume")
    check(len(study.events("end")) == 7 and len(study.events("stopped")) == 1, "a stopped cell ran")
    del study.keys["early_stop"]
    study.write()
    study.run("--grow")
    check(len(study.states()) == 8, study.states())
    check("Stopped early" not in (study.output / "report.md").read_text(), "it has all its repeats")


def interrupted(folder):
    study = Study(folder, repeats=3, factors={"zero_optimization.stage": [0, 1]}, set={"train_steps": 1000000})

    process = subprocess.Popen(study.command("--resume"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    trains = lambda: any(file.stat().st_size > 0 for file in study.output.glob("runs/*/*/run/metrics.jsonl"))
    check(eventually(lambda: trains() or process.poll() is not None) and process.poll() is None, "it ended by itself")
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        let_pass(0.3)  # Waits: two that come at once are one
    said = process.communicate()[0]
    check(process.returncode == 130 and "--resume goes on" in said, f"{process.returncode} {said}")
    check(list(study.states().values()) == ["skipped"], study.states())
    left = subprocess.run(["pgrep", "-f", str(study.output)], capture_output=True, text=True)
    check(left.stdout.strip() == "", f"processes are left: {left.stdout}")


def bad_input(folder):
    cases = [
        ({"factors": {"zero_optimization.stagee": [0, 1]}}, ["stagee is not an option", 'did you mean "stage"']),
        ({"factors": {"bogus": ["absent", 1]}}, ["bogus is not a setting", 'factor "bogus", level "absent"']),
        ({"factors": {"seed": [1, 2]}, "set": {"bogus": 1}}, ["is refused: ", '"set"  bogus is not a setting']),
        ({"factors": {"sharding": {"levels": {"none": {}, "three": {"zero_optimization.stage": 3, "zero_optimization.x": 1}}}}},
         ['factor "sharding", level "three"', "x is not an option"]),
        ({"factors": {"zero_optimization.stage": [0, "x"]}}, ['level "x"', "expected integer"]),
        ({"factors": {"seed": [1, 2]}, "constraints": [{"not": {"seed": [1, 2]}}]}, ["leave no cell"]),
        ({"rows": [{"set": {"seed": 1}}, {"set": {"seed": 1}}]}, ["two cells have the id"]),
        ({"factors": {"tensor_parallel.size": [3, 1]}}, ["the reference cell", "is refused"]),
    ]
    for number, (keys, says) in enumerate(cases):
        study = Study(folder / str(number), **keys)
        check("--set #" not in study.run("--plan", code=2, says=says), "a place that is not in the study's file")
        check(not study.output.exists(), "a plan left a folder")
    slurm = Study(folder / "slurm", factors={"seed": [1, 2]}, dispatch={"slurm": {}})
    ran = subprocess.run(slurm.command(), text=True, capture_output=True, env={**os.environ, "PATH": str(folder)})
    check(ran.returncode == 2 and "sbatch is not to be had here" in ran.stderr, f"{ran.returncode} {ran.stderr}")
    check(not slurm.output.exists(), "a study that is refused left a folder")


def enough_repeats(folder):
    """Any difference is shown by few repeats if it is large enough: the study ends where the A/A pair says so."""
    study = Study(folder, repeats={"until": 100, "least": 3, "most": 50}, noise_cell=True, figure="minimum",
                  factors={"seed": [1, 2]}, gate=False)
    said = study.run(says=["repeats are enough: by the A/A pair", "10000 % was asked for"])
    # Three on a quiet machine; one that others use as well may ask for some more.
    repeats = int(re.search(r"(\d+) repeats are enough", said).group(1))
    check(3 <= repeats < 50 and len(study.states()) == 3 * repeats, study.states())
    study.run("--resume", says=[f"{repeats} repeats are enough"])
    check([line["repeats"] for line in study.events("enough")] == [repeats], study.events("enough"))
    page = (study.output / "report.html").read_text()
    check(f"until a difference of 10000 % would be shown; {repeats} were enough" in page, "the report reads as one that is cut off")
    report = json.loads((study.output / "report.json").read_text())
    check(report["sensitivity"]["n"] == repeats and report["sensitivity"]["repeats_needed"]["0.1"] >= 2, report["sensitivity"])


def one_run_again(folder):
    """Repeats with one seed learn the same: they are called so before and after, and the study does not wait for them to differ."""
    study = Study(folder, repeats={"until": 0.01, "least": 3, "most": 50}, noise_cell=True, outcome={"metric": "loss", "better": "lower"},
                  factors={"lr": {"key": "optimizer.params.lr", "levels": [0.001, 0.002]}}, gate=False)
    study.run(says=["every repeat of a cell has the same seed", "repeats of a cell are the same to the last digit"])
    check({block for _, block in study.states()} == {0, 1, 2}, study.states())
    check("they are one run, done again with one seed" in (study.output / "report.md").read_text(), "the report does not say it")


def looks_at_whole_blocks_only(folder):
    """A study that goes on in the middle of a block ends it before it asks whether its repeats are enough."""
    study = Study(folder, repeats={"until": 1e-9, "least": 3, "most": 4}, noise_cell=True, figure="minimum",
                  factors={"seed": [1, 2]}, gate=False)
    study.run()
    study.keys["repeats"]["until"] = 100
    study.write()
    head, *lines = (study.output / "ledger.jsonl").read_text().splitlines()
    head = json.loads(head)
    head["study"]["repeats"]["until"] = 100
    (study.output / "ledger.jsonl").write_text("\n".join([json.dumps(head), *lines[:-4], ""]))  # two runs fewer
    check(len(study.states()) == 10, study.states())
    check("are enough" not in study.run("--resume"), "it looked in the middle of a block")
    check(len(study.states()) == 12, study.states())


def fraction(folder):
    """Effects of a fraction with what they cannot be told from, in every file of the report."""
    study = Study(folder, repeats=2, cross="fractional", fraction=2, gate=False, factors={
        "zero_optimization.stage": [0, 1], "seed": [1, 2], "optimizer.params.lr": [0.001, 0.002]})
    study.run()
    effects = json.loads((study.output / "report.json").read_text())["effects"]
    check(len(effects) == 3 and all(effect["n"] == 2 for effect in effects), effects)
    check(effects[1]["cannot_be_told_from"] == ["zero_optimization.stage x optimizer.params.lr (0.5)"], effects)
    for name in ("report.html", "report.md", "effects.csv"):
        text = (study.output / name).read_text()
        check("cannot tell it from the main effect of seed" in text, f"{name}: {text}")


# A machine for planned times; `ranks`: that it has.
def hardware_file(path, ranks):
    machine = json.loads((Path(__file__).parents[2] / "configs/hardware/h100.json").read_text())
    machine |= {"device": "cpu", "ranks_per_host": ranks, "hosts": 1, "peak_tflops": {"float32": 0.1}}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(machine))
    return str(path)


def planned_times(folder):
    levels = {"world_size": [1, 2], "model.params.num_layers": [1, 4]}
    study = Study(folder / "a", repeats=2, noise_cell=False, cross="full", factors=levels,
                  hardware=hardware_file(folder / "one.json", 1))
    plan = json.loads(study.run("--plan", "--json", "--hardware", hardware_file(folder / "two.json", 2)))
    steps = [cell["planned_step_s"] for cell in plan["cells"]]
    check(all(step and step > 0 for step in steps), plan)
    by_cell = {cell["cell"]: cell["planned_step_s"] for cell in plan["cells"]}
    check(max(steps) > 1.5 * min(steps), by_cell)
    check(abs(plan["planned_seconds_in_steps"] - 2 * BASE["train_steps"] * sum(steps)) < 1e-9, plan)
    plan = json.loads(study.run("--plan", "--json"))  # with the study's own machine of one rank
    for cell in plan["cells"]:
        check(bool(cell["planned_step_s"]) == (cell["world_size"] == 1), plan)
        check(("has 1 host of 1" in cell["no_planned_time"]) == (cell["world_size"] == 2), plan)
    check("no planned time: the run has 2 ranks" in study.run("--plan"), "the reason is not told")
    without = Study(folder / "b", factors={"seed": [1, 2]})
    check("no planned time: give --hardware FILE" in without.run("--plan"), "nothing says how to get times")
    without.run("--plan", "--hardware", str(folder / "none.json"), code=2, says=["none.json"])


def offloaded_cells_need_less(folder):
    """Of runs on GPUs, which need not be here: what a cell keeps on the host is no memory of its device."""
    study = Study(folder, factors={"zero_optimization.offload_optimizer.device": ["none", "cpu"]},
                  set={"device": "cuda", "bf16.enabled": True, "zero_optimization.stage": 2})
    plan = json.loads(study.run("--plan", "--json", "--hardware", "h100"))
    kept, away = [cell["planned_bytes"] for cell in plan["cells"]]
    parameters = 64 * 16 + 16 * 16  # embeddings, and more in layers
    check(kept - away > 8 * parameters, plan)
    check(all(cell["planned_step_s"] for cell in plan["cells"]), plan)


def plan_and_compare(folder):
    study = Study(folder / "a", repeats=2, keep="tokens_per_rank", factors={"world_size": [1, 2]},
                  environment={"OMP_NUM_THREADS": "1"})
    plan = json.loads(study.run("--plan", "--json"))
    check([cell["train_batch_size"] for cell in plan["cells"]] == [4, 8], plan)
    study.run()
    shutil.copytree(study.output, folder / "b")
    said = subprocess.run([PROGRAM, "study", "compare", str(study.output), str(folder / "b")], text=True,
                          capture_output=True)
    check(said.returncode == 0 and said.stdout.count("no difference shown") == 2, said.stdout + said.stderr)
    ledger = folder / "b/ledger.jsonl"
    whole = ledger.read_text()
    for change, code, part in ((lambda head: head["warmup"].update(quantile=0.1), 2, "is the 10 % quantile of its steps"),
                               (lambda head: head["warmup"].update(steps=2), 2, "steps after the first 2"),
                               (lambda head: head.update(trim=0.2), 0, '"trim" is not applied')):
        head, rest = whole.split("\n", 1)
        head = json.loads(head)
        change(head)
        ledger.write_text(json.dumps(head) + "\n" + rest)
        said = subprocess.run([PROGRAM, "study", "compare", str(study.output), str(folder / "b")], text=True,
                              capture_output=True)
        check(said.returncode == code and part in said.stdout + said.stderr, said.stdout + said.stderr)
    ledger.write_text(whole)
    ledger.write_text(ledger.read_text().replace('"cores":', '"cores":1', 1))
    for options, code in (([], 2), (["--any-environment"], 0)):
        said = subprocess.run([PROGRAM, "study", "compare", str(study.output), str(folder / "b"), *options], text=True,
                              capture_output=True)
        check(said.returncode == code and "cores" in said.stdout + said.stderr, said.stdout + said.stderr)


def main():
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="drivetrain-study-")))
        cases = (looks_at_whole_blocks_only, one_run_again, enough_repeats, fraction, plan_and_compare, every_end, too_late, disk_full,
                 on_a_terminal, killed_and_resumed, grown, of_many_pieces, live, disturbed, side_by_side, stopped_early, interrupted, bad_input, planned_times, offloaded_cells_need_less)
        cases = [case for case in cases if case.__name__ in (sys.argv[1:] or [case.__name__])]  # those that are named, or all
        with concurrent.futures.ThreadPoolExecutor(3) as threads:
            running = {threads.submit(case, folder / case.__name__): case.__name__ for case in cases}
            for done in concurrent.futures.as_completed(running):
                if done.exception():
                    threads.shutdown(wait=False, cancel_futures=True)
                    raise SystemExit(f"{running[done]}: {done.exception()}")
                print(f"ok {running[done]}", flush=True)


main()
