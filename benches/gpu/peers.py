"""What the comparisons share: the binary `kiln`, torch, timing, the state of the GPU, and results.

Both sides are timed alike: a sample is a batch of calls between two events on the stream, long enough
(2 ms, at most 256 calls) that what an event and the first launch cost is lost in it; three batches
warm up, and the median is reported. Tensors stay the same, so what fits the L2 cache comes from
there for everyone.

The report is written after every case. A call may have a limit (--limit), at which no other case is
begun, and the next call goes on with the report (--resume): for machines that end a command after
so many minutes.
"""

import argparse
import concurrent.futures
import datetime
import importlib.util
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BATCH_MS = 2.0
BATCH_CALLS_MAX = 256
WARM_UP = 3
# Seconds of a command of Kiln: most are done in ten.
KILN_S = 240


def find_binary():
    """The built command line, or None."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    places = [
        os.environ.get("KILN_BINARY"),
        target / "release" / "kiln",
        ROOT / "out" / "gpu" / "kiln",
        pathlib.Path(__file__).with_name("kiln"),
    ]
    return next((str(at) for at in places if at and pathlib.Path(at).is_file()), None)


def run_kiln(*arguments):
    """What a command of `kiln` prints as JSON, or its error."""
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=KILN_S)
    except subprocess.TimeoutExpired:
        return {"error": f"no result within {KILN_S} s"}
    if done.returncode != 0:
        return {"error": done.stderr.strip() or f"exit status {done.returncode}"}
    return json.loads(done.stdout)


def load_torch():
    """torch with a GPU, or why not."""
    try:
        import torch
    except (ImportError, OSError) as error:
        return None, str(error)
    if not torch.cuda.is_available():
        return None, "torch sees no GPU"
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    return torch, None


def timed(torch, call, samples):
    """Median microseconds of a call."""

    def batch(calls):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)

    batch(1)
    calls = min(max(math.ceil(BATCH_MS / max(batch(1), 1e-6)), 1), BATCH_CALLS_MAX)
    for _ in range(WARM_UP):
        batch(calls)
    return statistics.median(batch(calls) * 1000 / calls for _ in range(samples))


def captured(torch, call):
    """The call as a CUDA graph: its time without the host's."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def measured(torch, peers, samples):
    """Microseconds by name of each call, or why there are none, and whether torch still works: a
    call that fails is no matter to the others, one that faults takes the GPU from this process.
    """
    results = {}
    for name, make in peers.items():
        try:
            results[name] = {"us": timed(torch, make(), samples)}
        except Exception as error:
            results[name] = {"error": said(error)}
        try:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        except RuntimeError as error:
            results[name] = {"error": f"lost the GPU: {said(error)}"}
            return results, False
    return results, True


def said(error):
    """An exception's first line."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


def absent(modules):
    """Why peers are not measured, by name, of those whose Python module is not installed."""
    return {
        name: f"not installed: no module {module}"
        for name, module in modules.items()
        if importlib.util.find_spec(module) is None
    }


def best(results):
    """The least microseconds of the peers, or None."""
    times = [result["us"] for result in results.values() if "us" in result]
    return min(times, default=None)


def geomean(ratios):
    """The geometric mean of those there are, or None."""
    ratios = [ratio for ratio in ratios if ratio]
    return math.exp(statistics.fmean(map(math.log, ratios))) if ratios else None


def state():
    """Name, driver, clocks, power and temperature of the GPU, or why they can not be read."""
    keys = "name,driver_version,clocks.sm,clocks.max.sm,power.draw,temperature.gpu"
    command = ["nvidia-smi", f"--query-gpu={keys}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return str(error)
    return done.stdout.strip()


def parser(description):
    """The options that all comparisons have."""
    options = argparse.ArgumentParser(description=description.splitlines()[0])
    options.add_argument("--device", default="cuda:0", help="Kiln's device; torch uses GPU 0")
    options.add_argument("--samples", type=int, default=30, help="batches that are counted")
    options.add_argument(
        "--limit", type=float, metavar="S", help="seconds after which no case is begun"
    )
    options.add_argument("--resume", action="store_true", help="go on with the report in $OUT")
    return options


def begin(missing_peers):
    """The binary and torch, each None where it is missing, which is said; and the report."""
    binary = find_binary()
    torch, missing = load_torch()
    if binary is None:
        print("Kiln is not measured: no binary `kiln`", file=sys.stderr)
    if torch is None:
        print(f"torch is not measured: {missing}", file=sys.stderr)
    for name, why in missing_peers.items():
        print(f"{name} is not measured: {why}", file=sys.stderr)
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    report = {
        "date": now,
        "torch": torch and torch.__version__,
        "absent": missing_peers,
        "before": state(),
        "cases": [],
    }
    return binary, torch, report


def place(name):
    """The file of a report in $OUT."""
    out = pathlib.Path(os.environ.get("OUT") or "out")
    out.mkdir(parents=True, exist_ok=True)
    return out / f"{name}.json"


def write(path, report):
    """Writes a report, whole at every moment."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(report, indent=1) + "\n")
    part.replace(path)


def measures(path):
    """The cases of a report by what is measured, without what was found."""
    known = {}
    if path.is_file():
        for case in json.loads(path.read_text())["cases"]:
            known[key(case)] = case
    return known


def key(case):
    """What identifies a case."""
    found = ("kiln", "peers", "ratio")
    given = {name: value for name, value in case.items() if name not in found}
    return json.dumps(given, sort_keys=True)


def compile_ahead(commands):
    """Runs commands of Kiln side by side, each a few times less than for a figure: what they compile
    is found in the cache when they are timed, and all cores of the machine compile.
    """
    if commands:
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda command: run_kiln(*command, "--samples=1"), commands))


def compare(options, name, cases, command, calls, describe, modules=None):
    """Measures every case in turn by `kiln bench` and by its peers, prints each as it comes and
    writes the report after each; the exit status: 0 when Kiln was measured in every case, 3 when the
    limit left some.

    Of a case, `command` gives Kiln's arguments, `calls` torch's by name, and `describe` its name with
    what Kiln measured. Cases of a group have a geometric mean of their own. `modules` are those of
    peers that may not be installed, by the peers' names.
    """
    start = time.monotonic()
    path = place(name)
    known = measures(path) if options.resume else {}
    binary, torch, report = begin(absent(modules or {}))
    how = ["--json", f"--device={options.device}"]
    if binary and not options.device.startswith("sim"):
        new = [case for case in cases if key(case) not in known]
        compile_ahead([(binary, "bench", *command(case), *how) for case in new])
    left = 0
    for case in cases:
        if key(case) in known:
            case = known[key(case)]
        elif options.limit and time.monotonic() - start > options.limit:
            left += 1
            continue
        else:
            if binary:
                samples = f"--samples={options.samples}"
                case["kiln"] = run_kiln(binary, "bench", *command(case), *how, samples)
            if torch:
                with torch.inference_mode():
                    case["peers"], works = measured(torch, calls(torch, case), options.samples)
                if not works:
                    print("torch is not measured any more: it lost the GPU", file=sys.stderr)
                    torch = None
            case["ratio"] = ratio(case)
            show(describe(case), case)
        report["cases"].append(case)
        report["left"] = left
        write(path, report)
    report["left"] = left
    report["geomean"] = {}
    for group in dict.fromkeys(case["group"] for case in report["cases"]):
        of_group = [case["ratio"] for case in report["cases"] if case["group"] == group]
        report["geomean"][group] = mean = geomean(of_group)
        if mean:
            print(f"{group}: {mean:.2f}x (geometric mean)")
    report["after"] = state()
    write(path, report)
    if left:
        print(f"{left} cases are left: --resume goes on", file=sys.stderr)
        return 3
    return 0 if all("pass_us" in case.get("kiln", {}) for case in report["cases"]) else 1


def ratio(case):
    """How many times faster Kiln is than the fastest peer; None where one is missing."""
    own, peer = case.get("kiln", {}).get("pass_us"), best(case.get("peers", {}))
    return peer / own if own and peer else None


def show(name, case):
    """One line of a case, and a line for each error."""
    own, peers = case.get("kiln", {}), case.get("peers", {})
    figures = [("kiln", own.get("pass_us"))]
    figures += [(peer, result.get("us")) for peer, result in peers.items()]
    shown = "".join(f"  {of} {us:.1f}" for of, us in figures if us is not None)
    speed = "" if case["ratio"] is None else f"  {case['ratio']:.2f}x"
    print(f"{name:44}{shown}{speed}", flush=True)
    for of, result in [("kiln", own), *peers.items()]:
        if "error" in result:
            print(f"    {of}: {result['error']}", file=sys.stderr)
