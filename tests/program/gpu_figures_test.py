"""What tools/gpu_check makes of the answers of `bench`, `plan`, side_by_side and ncu. The first three were given on an H200 on 2026-11-29,
and are cut here.

    gpu_figures_test.py GPU_CHECK
"""
import json
import unittest

from gpu_stand_ins import ANSWERS, StandIns

import figures
import long_sequences
import product_choices

STEP = {
    "machine": {"cores": 16, "threads": 16, "idle": True}, "run": {"parameters": 124475904, "device": "cuda", "layers": 12},
    "step_s": {"min": 0.056015539, "median": 0.0571201, "max": 0.061380258},
    "phases_s": {"load": 2.3615999147295953e-05, "forward": 0.0, "backward": 0.06183168029785156, "finish": 0.00014710399508476257,
                 "update": 0.0010637760162353516},
    "device_idle_share_at_least": 0.0027914436046723346, "tokens_per_s": 573668.4634655751, "tflops": 457.80571780679657,
    "peak_memory_bytes": 12672576512,
    "steps": [{"step": 1, "loss": 10.976474494061831, "step_s": 0.504280123}, {"step": 7, "loss": 10.863719444978614, "step_s": 0.056015539}]}
LLAMA = dict(STEP, tokens_per_s=34743.0, tflops=575.5)
EIGHT_BITS = dict(STEP, tokens_per_s=48304.72789939256, tflops=800.1873157602449)
PLAN = {"forecast": {"fits": True, "memory_gib": {"together": 11.701789855957031, "on_host": 0.0}, "time": {"seconds": 0.06075}}}
HOST_PLAN = {"forecast": {"memory_gib": {"together": 10.310558319091797, "on_host": 2.086899757385254}, "time": {"seconds": 0.09736}}}
HARDWARE = {"name": "NVIDIA H200, 1 rank", "peak_tflops": {"bfloat16": 792.8628626589085}, "memory": {"gb_per_s": 4407.206008587643}}
TABLE = """machine: Intel(R) Xeon(R) Processor, 16 cores, 16 threads; processors idle before the benchmark
B 32, S 1024, H 12, D 64, causal, BFloat16; in turns, 15 rounds, medians
attention   forward  and backward  LibTorch forward  and backward  ratio of both     least to most    TFLOPS
flash      158.0 us      695.2 us          157.2 us      700.5 us          0.994    0.871 to 1.021  259.4624"""
SIDE = {"rows": [{"run": "gpt2_124m_gpu", "peer": "compiled", "ours_s": 0.0571, "theirs_s": 0.0612, "ratio": 0.933, "ratio_min": 0.93,
                  "ratio_max": 0.94, "memory_ratio": 0.84, "loss_difference": 2e-4}]}
NCU = "\n".join(",".join(f'"{cell}"' for cell in row) for row in (
    ("ID", "Kernel Name", "Metric Name", "Metric Unit", "Metric Value"),
    ("1", "void ns::gemm<int>(float)", "gpu__time_duration.sum", "us", "1,500.0"),
    ("1", "void ns::gemm<int>(float)", "dram__bytes.sum", "Mbyte", "3"),
    ("2", "void ns::gemm<int>(float)", "gpu__time_duration.sum", "us", "1500"),
    ("3", "adam", "gpu__time_duration.sum", "ms", "1"), ("3", "adam", "dram__bytes.sum", "Gbyte", "2")))
KERNELS = "4.00 ms in 3 kernels (two steps): gemm 75.0 % in 2, 1 GB/s; adam 25.0 % in 1, 2000 GB/s"


# In place of nvcc: what it makes prints two lines.
COMPILER = """#!/bin/sh
echo nvcc "$@" >> "$CALLS"
while [ "$1" != -o ]; do shift; done
printf '#!/bin/sh\necho q, k, v: 163 150\necho gpt2_124m 36.3 ms of a step, by the fastest kernels of the same bits 35.1\n' > "$2"
chmod +x "$2"
"""

# A run whose steps take 30, 21 and 23 s, and its plan.
TRAINED = """#!/usr/bin/env python3
import json, os, pathlib, sys
if sys.argv[1] == "plan":
    print(json.dumps({"forecast": {"memory_gib": {"together": 26.779, "on_host": 40.239}, "time": {"seconds": 22}}})); sys.exit()
config = json.loads(pathlib.Path(sys.argv[2]).read_text())
assert config["dataset"]["params"]["seq_length"] == 262144 and config["long_context"]
out = pathlib.Path(config["output_dir"])
out.mkdir()
steps = [dict(loss=json.loads(os.environ.get("LOSS", "11.9")), step_s=s, tgs=264500 / s, peak_memory_bytes=peak, host_peak_memory_bytes=5e10)
         for s, peak in ((30, 2e10), (21, 3e10), (23, 3e10))]
(out / "metrics.jsonl").write_text("".join(json.dumps(step) + "\\n" for step in steps))
why = "long_context: sequences of 262144 take 27.8 GiB of 30.0 GiB per rank"
(out / "log.txt").write_text(f"what the file leaves to rules:\\n  fused_block               {json.dumps({'mlp_chunk': 4096}, separators=(',', ':'))}  {why}\\n"
                             f"  activation_checkpointing  {json.dumps({'type': 'offload'}, separators=(',', ':'))}  {why}\\n")
"""


class Figures(StandIns):
    def setUp(self):
        super().setUp()
        for place in ("tree/bin/drivetrain", "tree/tools/bench/side_by_side", "path/ncu"):
            self.write(place, ANSWERS)
        for config in ("gpt2_124m_gpu", "llama_7b_gpu"):
            self.write(f"tree/configs/bench/{config}.json", "{}")
        self.write("tree/tools/bench/peer_pytorch.py", "")
        self.write("path/nvcc", COMPILER)
        self.write("path/nvidia-smi", """#!/bin/sh
case "$*" in
  *clocks*) echo '98, 1980, 2619, 640.50, 60' ;;
  *) echo 'NVIDIA Stand-in H200, 143771 MiB, 580.1, 9.0' ;;
esac
""")

    def answer(self, *first):
        """The stand-ins say these, each (words of the command, exit code, stdout, stderr), and else what the H200 said."""
        rest = [([" hardware "], 0, HARDWARE, ""), ([" plan "], 0, PLAN, ""), ([" attention "], 0, TABLE, ""), ([" kernels "], 0, TABLE, ""),
                ([" step ", "fp8"], 0, EIGHT_BITS, ""), ([" step ", "llama"], 0, LLAMA, ""),
                ([" step ", "capture=false"], 0, dict(STEP, device_idle_share_at_least=None), ""), ([" step "], 0, STEP, ""),
                (["/side_by_side "], 0, SIDE, ""), (["/ncu "], 0, "==PROF== connected\n" + NCU, "")]
        said = [(words, code, out if isinstance(out, str) else json.dumps(out), err) for words, code, out, err in [*first, *rest]]
        self.write("calls.answers", json.dumps(said))

    def became(self, *answers, only="bench"):
        """The rows of a call, by name."""
        self.answer(*answers)
        folder = f"call_{len(list(self.folder.glob('call_*')))}"
        self.code = self.run_check("--stage", "live" if only == "bench" else "time", "--only", only, logs=folder)
        return self.rows(folder)

    def test_steps_are_told_beside_the_plan_and_beside_each_other(self):
        rows = self.became()
        self.assertEqual(self.code, 0, self.text)
        self.assertEqual(set(rows), {"hardware", *figures.BENCHES, *figures.TABLES})
        self.assertEqual({row["result"] for row in rows.values()}, {"passed"}, self.text)
        told = {name: row["figures"] for name, row in rows.items()}
        self.assertEqual(
            told["gpt2_124m_gpu"],
            "12 layers, 573,668 tokens/s, 457.8 TFLOP/s (46.3 % of 989), step 0.05712 s (load 2.362e-05 s, forward 0 s, backward 0.06183 s, "
            "finish 0.0001471 s, update 0.001064 s), GPU at least 0.3 % idle between replays, peak 12.7 GB; planned 0.06075 s (+6.4 %), "
            "12.6 GB (-0.9 %)")
        self.assertIn("not recorded", told["gpt2_124m_gpu, not recorded"])
        self.assertTrue(told["gpt2_124m_gpu, zero 2"].endswith("; 100.0 % of the rate of gpt2_124m_gpu (goal: at least 97)"))
        self.assertTrue(told["gpt2_124m_gpu, GELU in products"].endswith("; 100.0 % of the rate of gpt2_124m_gpu"))
        eight_bits = [text for name, text in told.items() if "8 bits" in name]
        self.assertEqual(len(eight_bits), 4)
        for text in eight_bits:
            self.assertTrue(text.endswith(f"; {100 * 34743 / 48304.728:.1f} % of the time of llama_7b_gpu (goal: at most 70)"), text)
        self.assertIn("; steps 504.3, 56.0 ms; multiprocessors, MHz: 1980 to 1980", told["gpt2_124m_gpu, 64 sequences"])
        self.assertIn("memory {'gb_per_s': 4407.206008587643}", told["hardware"])
        self.assertIn("flash, 158.0 us, 695.2 us", told["kernels"])
        told = self.became(([" plan "], 0, HOST_PLAN, ""))["gpt2_124m_gpu, optimizer on the host"]["figures"]
        self.assertIn(", 11.1 GB (-12.6 %), 2.2 GB on the host", told)

    def test_what_a_step_must_not_be(self):
        rows = self.became(
            ([" step ", "capture=false"], 4, "", "drivetrain: error: out of memory on the GPU\n   the last word"),
            ([" step ", "micro_batch_size_per_gpu=64"], 0, dict(STEP, steps=[{"step": 1, "loss": None, "step_s": 0.1}]), ""),
            ([" step ", '"backend": "flash"'], 0, dict(STEP, steps=[{"step": 1, "loss": 1e9, "step_s": 0.1}]), ""),
            ([" step ", '"backend": "cudnn"'], 0, "Segmentation fault", ""),
            ([" step ", "gelu_fusion"], 0, dict(STEP, device_idle_share_at_least=0.031), ""),
            ([" step ", "zero_optimization"], 0, dict(STEP, device_idle_share_at_least=None), ""),
            ([" step ", "llama", "fp8"], 0, EIGHT_BITS, ""),
            ([" step ", "llama"], 0, dict(LLAMA, tflops=989 * 0.549), ""),
            ([" step ", "gpt2"], 0, dict(STEP, tokens_per_s=399999.0, machine={"idle": False}), ""))
        self.assertEqual(self.code, 1)
        wrong = {name: row["figures"] for name, row in rows.items() if row["result"] != "passed"}
        self.assertEqual({rows[name]["result"] for name in wrong}, {"FAILED"})
        for name, words in {
                "gpt2_124m_gpu, not recorded": "exit 4: drivetrain: error: out of memory on the GPU ... the last word",
                "gpt2_124m_gpu, optimizer on the host": "exit 4: ",
                "gpt2_124m_gpu, 64 sequences": "losses [None]",
                "gpt2_124m_gpu, FlashAttention": "losses [1000000000.0]",
                "gpt2_124m_gpu, cuDNN": "printed no JSON: Segmentation fault",
                "gpt2_124m_gpu, GELU in products": "the GPU is idle too long, or the step was not recorded: 12 layers",
                "gpt2_124m_gpu, zero 2": "the GPU is idle too long, or the step was not recorded: 12 layers",
                "gpt2_124m_gpu": "below 400,000 tokens/s: 12 layers, 399,999 tokens/s",
                "llama_7b_gpu": "below 55 % of peak: 12 layers"}.items():
            self.assertIn(words, wrong.pop(name))
        self.assertEqual(wrong, {})
        self.assertIn("processors NOT IDLE", rows["gpt2_124m_gpu"]["figures"])

    def test_a_step_that_is_not_planned_is_told_all_the_same(self):
        for answer, words in ((([" plan "], 4, "", "drivetrain: error: it does not fit"), "not planned: Failed exit 4: drivetrain: error: it does not fit"),
                              (([" plan "], 0, "{}", ""), "not planned: KeyError 'forecast'"),
                              (([" hardware "], 3, "", "no GPU"), "not planned: no hardware.json")):
            with self.subTest(words):
                rows = self.became(answer)
                self.assertEqual(rows["gpt2_124m_gpu"]["result"], "passed")
                self.assertIn(words, rows["gpt2_124m_gpu"]["figures"])

    def test_kernels_by_time_and_the_same_step_in_pytorch(self):
        told = {name: row["figures"] for name, row in self.became(only="profile").items()}
        self.assertEqual(told, {"gpt2_124m_gpu": KERNELS, "llama_7b_gpu": KERNELS,
                                product_choices.NAME: "gpt2_124m 36.3 ms of a step, by the fastest kernels of the same bits 35.1"})
        self.assertIn("-arch sm_90", self.said)
        told = {name: row["figures"] for name, row in self.became(only="peer").items()}
        self.assertEqual(told["gpt2_124m_gpu"], "0.933 (0.930-0.940) of compiled's 0.0612 s, memory 0.84, losses within 2e-04")

    def test_what_ncu_and_the_peer_refuse(self):
        for only, answer, result, words in (
                ("profile", (["/ncu "], 1, "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", ""), "not run", "needs the permission"),
                ("profile", (["/ncu "], 2, "", "==ERROR== an unknown option"), "FAILED", "exit 2: ==ERROR== an unknown option"),
                ("profile", (["/ncu "], 0, "==PROF== connected", ""), "FAILED", "ncu printed no table"),
                ("profile", (["/ncu "], 0, NCU.split("\n", 1)[0], ""), "FAILED", "ncu timed no kernel"),
                ("peer", (["/side_by_side "], 1, "", "no module named torch"), "FAILED", "exit 1: no module named torch"),
                ("peer", (["/side_by_side "], 0, "| run | PyTorch |", ""), "FAILED", "printed no JSON: | run | PyTorch |")):
            with self.subTest(words):
                row = self.became(answer, only=only)["gpt2_124m_gpu"]
                self.assertEqual(row["result"], result)
                self.assertIn(words, row["figures"])


class LongSequences(StandIns):
    def setUp(self):
        super().setUp()
        self.write("tree/bin/drivetrain", TRAINED)
        self.write("out/hardware.json", "{}")

    def row(self, **environment):
        self.run_check("--stage", "long", **environment)
        return self.rows()[long_sequences.NAME]

    def test_its_steps_and_memory_are_told_beside_the_plan(self):
        row = self.row()
        self.assertEqual(row["result"], "passed", self.text)
        self.assertEqual(
            row["figures"],
            "steps 30, 21, 23 s, 11,500 tokens/s, peak 30.0 GB, of the host's 50.0 GB; planned 22 s (+0.0 %), 28.8 GB (-4.2 %), 43.2 GB on the "
            'host; chosen: fused_block {"mlp_chunk":4096}, activation_checkpointing {"type":"offload"}')

    def test_a_loss_that_is_no_number_fails(self):
        row = self.row(LOSS="null")
        self.assertEqual(row["result"], "FAILED")
        self.assertIn("losses [None, None, None]", row["figures"])


class Clocks(unittest.TestCase):
    def test_steps_and_clocks_are_told_one_by_one(self):
        said = {"steps": [{"step_s": 0.114}, {"step_s": 0.1245}]}
        busy = "0, 345, 2619, 90.10, 30\nN/A\n98, 1980, 2619, 640.50, 60\n99, 1755, 2619, 698.00, 63\n"
        self.assertEqual(figures.one_by_one(said, busy),
                         "; steps 114.0, 124.5 ms; multiprocessors, MHz: 1755 to 1980, median 1868; memory, MHz: 2619 to 2619, median 2619; "
                         "power, W: 640 to 698, median 669; temperature, C: 60 to 63, median 62")
        self.assertIn("no clocks of a busy GPU", figures.one_by_one(said, ""))
        self.assertTrue(figures.WATCHED <= set(figures.BENCHES))


if __name__ == "__main__":
    unittest.main()
