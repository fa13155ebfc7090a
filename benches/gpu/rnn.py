#!/usr/bin/env python3
"""Compares recurrent networks on one GPU, in one run: Kiln and torch.nn (cuDNN), inference.

Every network is timed from its input vectors to its output: the input product is part of it. torch
runs eager and replayed as a CUDA graph; TF32 is off unless the case says so. A sample is one
forward pass between two events on the stream, on inputs that stay the same; three passes warm up.

The first group is the target: f16, one layer, one direction, where cuDNN has persistent kernels.
The others are what it runs step by step: bf16, GRU, both directions, two layers, ragged batches,
more than 1024 units.

Needs an NVIDIA GPU; PyTorch for the peers; the binary `kiln` for Kiln (in $KILN_BINARY, in
${CARGO_TARGET_DIR:-target}/release, or beside this file). What is missing is named, and the rest is
measured. Writes rnn.json to $OUT (or ./out) and a table to stdout.
"""

import argparse
import datetime
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
WARM_UP = 3


def cases(steps):
    """Networks by group: cell, units, batch, type, layers, both directions."""
    persistent = [
        ("lstm", units, batch, "f16", 1, False)
        for units in (256, 512, 768, 1024)
        for batch in (8, 32, 64, 128)
    ]
    others = [
        ("lstm", 512, 32, "bf16", 1, False),
        ("gru", 512, 32, "f16", 1, False),
        ("gru", 512, 32, "bf16", 1, False),
        ("lstm", 512, 32, "f16", 1, True),
        ("lstm", 512, 32, "f16", 2, False),
        ("lstm", 1536, 32, "f16", 1, False),
        ("lstm", 2048, 32, "f16", 1, False),
        ("lstm", 160, 44, "f32", 1, False),
    ]
    named = [("persistent", case) for case in persistent] + [("others", case) for case in others]
    keys = ("cell", "hidden", "batch", "dtype", "layers", "bidirectional")
    return [dict(zip(keys, case), group=group, steps=steps) for group, case in named]


def find_binary():
    """The built command line, or None."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    places = [
        os.environ.get("KILN_BINARY"),
        target / "release" / "kiln",
        pathlib.Path(__file__).with_name("kiln"),
    ]
    return next((str(at) for at in places if at and pathlib.Path(at).is_file()), None)


def run_kiln(binary, device, case, samples):
    """What `kiln bench rnn` says of a network."""
    command = [binary, "bench", "rnn", "--json", "--device", device, f"--samples={samples}"]
    for key in ("cell", "hidden", "batch", "steps", "layers", "dtype"):
        command.append(f"--{key}={case[key]}")
    if case["bidirectional"]:
        command.append("--bidirectional")
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        return {"error": done.stderr.strip()}
    return json.loads(done.stdout)


def load_torch():
    """torch with a GPU, or why not."""
    try:
        import torch
    except ImportError as error:
        return None, str(error)
    if not torch.cuda.is_available():
        return None, "torch sees no GPU"
    return torch, None


def timed(torch, call, samples):
    """Microseconds of every call, between events."""
    for _ in range(WARM_UP):
        call()
    torch.cuda.synchronize()
    times = []
    for _ in range(samples):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000)
    return times


def run_torch(torch, case, samples):
    """Median microseconds of torch.nn, eager and as a CUDA graph."""
    dtype = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[case["dtype"]]
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    of_cell = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[case["cell"]]
    network = of_cell(
        case["hidden"],
        case["hidden"],
        num_layers=case["layers"],
        bidirectional=case["bidirectional"],
    )
    network = network.to(device="cuda", dtype=dtype).eval()
    x = torch.randn(case["steps"], case["batch"], case["hidden"], device="cuda", dtype=dtype)
    results = {}
    with torch.no_grad():
        results["eager_us"] = statistics.median(timed(torch, lambda: network(x), samples))
        try:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                network(x)
            results["graph_us"] = statistics.median(timed(torch, graph.replay, samples))
        except RuntimeError as error:
            results["graph_error"] = str(error).splitlines()[0]
    return results


def speedup(case):
    """How many times faster Kiln is than the faster way of torch; None where one is missing."""
    own = case.get("kiln", {}).get("pass_us")
    peers = [case.get("torch", {}).get(key) for key in ("eager_us", "graph_us")]
    peers = [time for time in peers if time]
    return min(peers) / own if own and peers else None


def print_case(case):
    text = f"{case['cell']} {case['dtype']} H {case['hidden']} B {case['batch']}"
    text += f" L {case['layers']}" + (" both" if case["bidirectional"] else "")
    own = case.get("kiln", {})
    peer = case.get("torch", {})
    figures = [own.get("pass_us"), own.get("step_us"), peer.get("eager_us"), peer.get("graph_us")]
    shown = ["-" if figure is None else f"{figure:.1f}" for figure in figures]
    ratio = "-" if case["speedup"] is None else f"{case['speedup']:.2f}x"
    print(f"{text:34}" + "".join(f"{figure:>12}" for figure in shown) + f"{ratio:>9}")
    if "error" in own:
        print(f"    kiln: {own['error']}", file=sys.stderr)


def state():
    """Name, driver and clocks of the GPU, or why they can not be read."""
    keys = "name,driver_version,clocks.sm,clocks.max.sm,power.draw,temperature.gpu"
    command = ["nvidia-smi", f"--query-gpu={keys}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return str(error)
    return done.stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda:0", help="Kiln's device")
    parser.add_argument("--samples", type=int, default=30, help="passes that are counted")
    parser.add_argument("--steps", type=int, default=512, help="steps of a sequence")
    parser.add_argument("--group", choices=("persistent", "others"), help="only these networks")
    options = parser.parse_args()

    binary = find_binary()
    torch, missing = load_torch()
    if binary is None:
        print("Kiln is not measured: no binary `kiln`", file=sys.stderr)
    if torch is None:
        print(f"torch is not measured: {missing}", file=sys.stderr)
    results = {"date": datetime.date.today().isoformat(), "before": state(), "cases": []}
    heads = ("kiln us", "a step", "eager us", "graph us", "")
    print(f"{'network':34}" + "".join(f"{head:>12}" for head in heads[:-1]))
    for case in cases(options.steps):
        if options.group and case["group"] != options.group:
            continue
        if binary:
            case["kiln"] = run_kiln(binary, options.device, case, options.samples)
        if torch:
            case["torch"] = run_torch(torch, case, options.samples)
        case["speedup"] = speedup(case)
        print_case(case)
        results["cases"].append(case)
    for group in ("persistent", "others"):
        ratios = [case["speedup"] for case in results["cases"] if case["group"] == group]
        ratios = [ratio for ratio in ratios if ratio]
        if ratios:
            results[f"{group}_geomean"] = math.exp(statistics.fmean(map(math.log, ratios)))
            print(f"{group}: {results[f'{group}_geomean']:.2f}x (geometric mean)")
    results["after"] = state()
    out = pathlib.Path(os.environ.get("OUT", "out"))
    out.mkdir(parents=True, exist_ok=True)
    (out / "rnn.json").write_text(json.dumps(results, indent=1) + "\n")
    measured = [case for case in results["cases"] if "pass_us" in case.get("kiln", {})]
    return 0 if measured else 1


if __name__ == "__main__":
    sys.exit(main())
