#!/usr/bin/env python3
"""Compares the demo chain on one GPU, in one run: Kiln, torch eager, torch.compile, and a copy.

The chain is y = clip(gelu(x + bias) + residual, -1, 6) in bf16. Every peer is timed by the same
rules as examples/bench_pointwise.rs: a sample is a batch of launches between two events, and
launches rotate through sets of tensors that together exceed the L2 cache several times. Bytes are
the least that must move (each input once, the output once), so GB/s of a peer that keeps
intermediates in memory is its effective rate. The copy moves the same bytes, half read and half
written; its rate is what the memory gives.

Needs an NVIDIA GPU; PyTorch for the peers; the built example for Kiln. What is missing is named,
and the rest is measured. Writes pointwise.json to $OUT (or ./out) after every size, and a table to
stdout.
"""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys

import peers

# Elements: 1 Mi, 16 Mi, 256 Mi.
SIZES = [(1024, 1024), (4096, 4096), (32768, 8192)]

# As in examples/bench_pointwise.rs.
WARM_UP = 3
L2_MULTIPLE = 4
BATCH_BYTES = 4 << 30

QUERY = [
    "name",
    "driver_version",
    "clocks.sm",
    "clocks.mem",
    "clocks.max.sm",
    "clocks.max.mem",
    "power.draw",
    "power.limit",
    "temperature.gpu",
]


def bytes_of(rows, columns):
    """Bytes the chain must move: x, residual, bias and y."""
    return 2 * (3 * rows * columns + columns)


def nvidia_smi(index):
    """State of the GPU, or why it can not be read."""
    command = [
        "nvidia-smi",
        f"--id={index}",
        f"--query-gpu={','.join(QUERY)}",
        "--format=csv,noheader",
    ]
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        return {"missing": f"nvidia-smi: {error}"}
    values = [value.strip() for value in run.stdout.strip().split(",")]
    return dict(zip(QUERY, values))


def find_binary():
    """The built example, and the places looked at."""
    given = os.environ.get("KILN_BENCH_POINTWISE")
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", peers.ROOT / "target"))
    places = [
        pathlib.Path(given) if given else None,
        target / "release/examples/bench_pointwise",
        peers.ROOT / "out/gpu/bench_pointwise",
        pathlib.Path(__file__).resolve().parent / "bench_pointwise",
    ]
    places = [place for place in places if place]
    found = next((place for place in places if os.access(place, os.X_OK)), None)
    return found, [str(place) for place in places]


def run_kiln(binary, device, rows, columns, samples):
    """What the example prints, or why it failed."""
    command = [str(binary), device, str(rows), str(columns), str(samples)]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=600)
    except (OSError, subprocess.SubprocessError) as error:
        return {"missing": f"{' '.join(command)}: {error}"}
    if run.returncode != 0:
        return {"missing": run.stderr.strip() or f"exit status {run.returncode}"}
    return json.loads(run.stdout)


def sample(torch, calls, samples):
    """Milliseconds per call of each batch, sorted; a batch makes every call once."""

    def batch():
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        start.record()
        for call in calls:
            call()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / len(calls)

    for _ in range(WARM_UP):
        batch()
    return sorted(batch() for _ in range(samples))


def summary(times, size, **more):
    """Median and minimum, with the rate they mean."""
    median = statistics.median(times)
    rate = size / median / 1e6
    return {"median_ms": median, "min_ms": times[0], "gb_per_s": rate, **more}


def run_torch(torch, rows, columns, samples):
    """Every peer at one size: its summary, or why it failed."""
    size = bytes_of(rows, columns)
    l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    sets = min(max(-(-L2_MULTIPLE * l2_bytes // size), 2), 64)
    batch = min(max(BATCH_BYTES // size, 4), 256)
    how = {"samples": samples, "batch": batch, "sets": sets}

    def values(*shape):
        return torch.empty(shape, dtype=torch.bfloat16, device="cuda").uniform_(-2.5, 2.5)

    tensors = [
        (values(rows, columns), values(1, columns), values(rows, columns)) for _ in range(sets)
    ]

    def chain(x, bias, residual):
        return (torch.nn.functional.gelu(x + bias) + residual).clamp(-1.0, 6.0)

    def rotation(function):
        return [lambda at=at: function(*tensors[at % sets]) for at in range(batch)]

    def copies():
        half = size // 2
        pairs = [
            [torch.ones(half, dtype=torch.uint8, device="cuda") for _ in range(2)]
            for _ in range(sets)
        ]
        return [lambda at=at: pairs[at % sets][0].copy_(pairs[at % sets][1]) for at in range(batch)]

    def graph_of(function):
        # Replaying counts as one call, so each sample is divided by the batch here.
        calls = rotation(function)
        replay = peers.captured(torch, lambda: [call() for call in calls])
        return [time / batch for time in sample(torch, [replay], samples)]

    torch._dynamo.reset()
    compiled = torch.compile(chain, dynamic=False)
    measures = {
        "torch eager": lambda: sample(torch, rotation(chain), samples),
        "torch.compile": lambda: sample(torch, rotation(compiled), samples),
        "torch.compile, CUDA graph": lambda: graph_of(compiled),
        "copy": lambda: sample(torch, copies(), samples),
    }
    results = {}
    with torch.inference_mode():
        for name, measure in measures.items():
            try:
                results[name] = summary(measure(), size, **how)
            except Exception as error:  # One peer that fails must not take the others with it.
                results[name] = {"missing": f"{type(error).__name__}: {error}"}
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
    return results


def add_shares(results):
    """Each result's rate as a percentage of the copy's."""
    copy = results.get("copy", {}).get("gb_per_s")
    for result in results.values():
        rate = result.get("gb_per_s")
        result["percent_of_copy"] = 100 * rate / copy if copy and rate else None


def print_table(rows, columns, results):
    """One size as text."""
    print(f"\n{rows} x {columns} bf16, {bytes_of(rows, columns) / 1e6:.1f} MB per launch")
    print(f"  {'':26} {'median us':>10} {'min us':>10} {'GB/s':>8} {'% of copy':>10}")
    for name, result in results.items():
        if "missing" in result:
            print(f"  {name:26} missing: {result['missing'].splitlines()[0]}")
            continue
        median, least = result["median_ms"] * 1e3, result["min_ms"] * 1e3
        rate, share = result["gb_per_s"], result["percent_of_copy"]
        rate = "-" if rate is None else f"{rate:.0f}"
        share = "-" if share is None else f"{share:.1f}"
        print(f"  {name:26} {median:10.2f} {least:10.2f} {rate:>8} {share:>10}")


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda:0", help="Kiln's device; torch uses GPU 0")
    parser.add_argument("--samples", type=int, default=50, help="batches per measurement")
    parser.add_argument(
        "--size",
        action="append",
        metavar="ROWSxCOLUMNS",
        help="instead of 1024x1024, 4096x4096 and 32768x8192; may be repeated",
    )
    given = parser.parse_args()
    if given.samples < 1:
        parser.error("--samples is less than 1")
    try:
        sizes = [tuple(map(int, size.split("x"))) for size in given.size or []]
        given.sizes = [(rows, columns) for rows, columns in sizes] or SIZES
    except ValueError:
        parser.error("--size is like 4096x4096")
    return given


def main():
    """Measures, prints and writes; 1 when Kiln could not be measured."""
    given = arguments()
    binary, places = find_binary()
    torch, no_torch = peers.load_torch()
    missing = []
    if binary is None:
        missing.append(f"bench_pointwise: not at {' or '.join(places)}; see benches/gpu/README.md")
    if torch is None:
        missing.append(f"{no_torch}; no peers and no copy, so no % of copy")
    for line in missing:
        print(f"missing: {line}")
    report = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "chain": "clip(gelu(x + bias) + residual, -1, 6), bf16",
        "torch": torch and torch.__version__,
        "missing": missing,
        "gpu_before": nvidia_smi(0),
        "sizes": [],
    }
    gpu = report["gpu_before"]
    print(f"GPU: {gpu.get('name', gpu.get('missing'))}, driver {gpu.get('driver_version', '?')}")
    measured = bool(given.sizes)
    path = peers.place("pointwise")
    for rows, columns in given.sizes:
        kiln = {"missing": "bench_pointwise is not built"}
        if binary is not None:
            kiln = run_kiln(binary, given.device, rows, columns, given.samples)
        results = {"kiln": kiln}
        if torch is not None:
            results.update(run_torch(torch, rows, columns, given.samples))
        add_shares(results)
        measured = measured and "missing" not in kiln
        print_table(rows, columns, results)
        report["sizes"].append(
            {
                "rows": rows,
                "columns": columns,
                "bytes": bytes_of(rows, columns),
                "results": results,
                "gpu_after": nvidia_smi(0),
            }
        )
        peers.write(path, report)
    print(f"\nwritten to {path}")
    return 0 if measured else 1


if __name__ == "__main__":
    sys.exit(main())
