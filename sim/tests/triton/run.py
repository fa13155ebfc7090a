#!/usr/bin/env python3
"""Compiles kernels with Triton, runs them on the simulator with all checks, compares with numpy.

    sim/tests/triton/run.py [--ptx DIR] [--only NAME[,NAME]] [--target 80,90,100,120]

Needs Triton and numpy (`make triton-kernels` installs them in a folder of its own) and the command
`kiln-sim`, which KILN_SIM names. No GPU is used. Prints a table of kernels and targets: `right`,
`wrong`, or `found` for what is known to be undefined by PTX. Exit status 1 if anything is wrong.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TRITON_CACHE_DIR", str(Path("target/triton-cache").resolve()))
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

import numpy as np
import triton

from cases import CASES, TARGETS
from data import buffer

SIM = os.environ.get("KILN_SIM", "target/debug/kiln-sim")
# Triton leaves out the fence after mbarrier.init where a block is alone in its cluster, and LLVM
# moves arithmetic on what a tcgen05.ld loads before the wait for it.
CHECKS = "all,-missing-mbarrier-fence,-unfinished-tensor-load"

STORAGE = {"bf16": np.uint16, "f16": np.float16, "f32": np.float32, "f64": np.float64,
           "i32": np.int32, "i64": np.int64, "u8": np.uint8, "u16": np.uint16}


def written(item, folder, name):
    """An entry of the job, whose contents are in a file."""
    if "count" not in item:
        return item, None
    out = {"dtype": item["dtype"], "count": item["count"]}
    if item["fill"] is not None:
        path = folder / f"{name}.in"
        path.write_bytes(np.ascontiguousarray(item["fill"]).tobytes())
        out["fill"] = {"file": str(path)}
    save = folder / f"{name}.out"
    if item["save"]:
        out["save"] = str(save)
    return out, (save, STORAGE[item["dtype"]]) if item["save"] else None


def run(case, target, folder, ptx_folder, seed):
    """What is wrong, or None."""
    compiled = case.compile(target)
    ptx, meta = compiled.asm["ptx"], compiled.metadata
    path = (ptx_folder or folder) / f"{case.name.replace(' ', '_')}.sm_{target}.ptx"
    path.write_text(ptx)
    arguments, buffers, grid, check = case.setup()
    scratch = meta.global_scratch_size * int(np.prod(grid))
    # Triton appends the addresses of scratch memory.
    arguments = arguments + [buffer("u8", max(scratch, 1)), buffer("u8", 1)]
    saved = {}
    entries = []
    for at, item in enumerate(arguments + buffers):
        entry, save = written(item, folder, str(at))
        entries.append(entry)
        if save:
            saved[at] = save
    threads = next(int(line.split()[1]) for line in ptx.splitlines() if line.startswith(".reqntid"))
    ctas = meta.num_ctas
    # Triton multiplies the grid by the blocks of a program.
    job = {"grid": [grid[0] * ctas, *grid[1:]], "cluster": [ctas, 1, 1] if ctas > 1 else [0] * 3,
           "block": [threads, 1, 1], "shared_bytes": meta.shared,
           "arguments": entries[:len(arguments)], "buffers": entries[len(arguments):]}
    job_path = folder / "job.json"
    job_path.write_text(json.dumps(job))
    command = [SIM, path, job_path, "--checks", CHECKS, "--seed", str(seed)]
    command += ["--warp-instructions-max", "100000000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        text = (done.stdout + done.stderr).strip()
        return text if "-v" in sys.argv else text.splitlines()[0]
    return check({at: np.fromfile(file, ty) for at, (file, ty) in saved.items()})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ptx", type=Path, help="folder to keep the PTX in")
    parser.add_argument("--only", default="", help="names of kernels")
    parser.add_argument("--target", default=",".join(map(str, TARGETS)))
    parser.add_argument("--seed", type=int, default=0, help="order of warps")
    parser.add_argument("-v", action="store_true", help="print findings in full")
    options = parser.parse_args()
    if options.ptx:
        options.ptx.mkdir(parents=True, exist_ok=True)
    targets = [int(target) for target in options.target.split(",")]
    names = [name for name in options.only.split(",") if name]
    counts, wrong = [0, 0, 0], []
    print(f"| Triton {triton.__version__} | " + " | ".join(f"sm_{t}" for t in targets) + " |")
    print("|---" * (len(targets) + 1) + "|")
    for case in CASES:
        if names and case.name not in names:
            continue
        cells = []
        for target in targets:
            if target not in case.only:
                cells.append("")
                continue
            with tempfile.TemporaryDirectory() as folder:
                try:
                    result = run(case, target, Path(folder), options.ptx, options.seed)
                except subprocess.TimeoutExpired:
                    result = "does not end"
            found = case.found.get(target)
            if found and result and found in result:
                counts[2] += 1
                cells.append("found")
                continue
            if found:
                result = f"not found: {found}"
            counts[bool(result)] += 1
            cells.append("wrong" if result else "right")
            if result:
                wrong.append(f"{case.name}, sm_{target}: {result}")
        print(f"| {case.name} | " + " | ".join(cells) + " |", flush=True)
    right, bad, found = counts
    print(f"\n{right} right, {bad} wrong, {found} with a finding that is known", *wrong, sep="\n")
    sys.exit(bool(wrong))


main()
