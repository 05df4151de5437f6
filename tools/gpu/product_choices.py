"""What a choice of kernels would save: product_choices.cu, compiled where it runs."""
import pathlib
import shutil

from machine import NotRun

NAME = "products, by each of cuBLASLt's kernels"
SOURCE = pathlib.Path(__file__).with_suffix(".cu")


def check(machine):
    """The last line of the program; its log has a line for each product."""
    compiler = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    program = machine.logs / "product_choices"
    command = [compiler, "-O2", "-std=c++20", "-arch", f"sm_{machine.arch() or 90}", "-o", program, SOURCE, "-lcublasLt"]
    if not compiler:
        raise NotRun("needs nvcc")
    machine.output("compile product_choices", command, 120)
    if machine.dry:
        return "nvcc product_choices.cu"
    return machine.output("product_choices", [program, *(["--without-8-bits"] if machine.arch() < 89 else [])], 120).strip().splitlines()[-1]
