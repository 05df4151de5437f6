#!/usr/bin/env python3
"""Makes a LibTorch folder whose NVIDIA libraries are all there and do nothing: nvidia_stubs.py TORCH FOLDER.

FOLDER/torch holds links to the files of TORCH, FOLDER/nvidia/cu13/lib libraries that define what libtorch_cuda.so wants,
symbol by symbol and version by version. So CUDA libraries open, and the CUDA runtime (a real one) says what is missing: a driver.
"""

import collections
import re
import subprocess
import sys
from pathlib import Path

LIBRARIES = ("cusparse.so.12 cufft.so.12 cufile.so.0 cusparseLt.so.0 nccl.so.2 curand.so.10 cublas.so.13 cublasLt.so.13 cudnn.so.9 "
             "nvshmem_host.so.3").split()
UNVERSIONED = re.compile(r"(cusparse|cuFile|nccl|curand|nvshmem)")


def wanted(torch):
    """Symbols by version; those without one under ""."""
    symbols = collections.defaultdict(set)
    for name in ("libtorch_cuda.so", "libtorch_nvshmem.so"):
        listing = subprocess.run(["nm", "-D", "--undefined-only", "--with-symbol-versions", torch / "lib" / name],
                                 capture_output=True, text=True, check=True).stdout
        for line in listing.splitlines():
            symbol, _, version = line.split()[-1].partition("@")
            version = version.strip("@")
            if version or UNVERSIONED.match(symbol):
                symbols[version].add(symbol)
    return symbols


def build(library, symbols, folder):
    """A library of empty functions. One takes all that have no version: whose they are does not matter to the linker."""
    mine = {version: names for version, names in symbols.items()
            if version == f"lib{library}" or (version == "NVSHMEM" and library.startswith("nvshmem"))}
    names = set().union(*mine.values()) | (symbols[""] if library.startswith("cufile") else set())
    code = folder / "stub.c"
    code.write_text("".join(f"void {name}(void) {{}}\n" for name in sorted(names)))
    command = ["cc", "-w", "-shared", "-fPIC", "-fno-builtin", f"-Wl,-soname,lib{library}", "-o", folder / f"lib{library}", code]
    if mine:
        script = folder / "stub.map"
        script.write_text("".join(f"{version} {{ global: {' '.join(f'{name};' for name in sorted(names))} }};\n"
                                  for version, names in mine.items()))
        command.append(f"-Wl,--version-script={script}")
    subprocess.run(command, check=True)


def main():
    torch, folder = Path(sys.argv[1]), Path(sys.argv[2])
    libraries = folder / "nvidia/cu13/lib"
    libraries.mkdir(parents=True)
    (folder / "torch/lib").mkdir(parents=True)
    for file in (torch / "lib").glob("*.so*"):
        (folder / "torch/lib" / file.name).symlink_to(file)
    (folder / "torch/include").symlink_to(torch / "include")
    for name in ("libcudart.so.13", "libcupti.so.13"):
        (libraries / name).symlink_to(torch.parent / "nvidia/cu13/lib" / name)
    symbols = wanted(torch)
    for library in LIBRARIES if sys.argv[3:] != ["--none"] else []:
        build(library, symbols, libraries)


main()
