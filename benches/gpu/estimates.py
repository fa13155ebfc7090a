#!/usr/bin/env python3
"""Estimates without a GPU what a folder of results measured, by `kiln sass`: from machine code and
counts of the simulator.

Writes FOLDER/estimates.json, microseconds (`us`) by group and case, and prints each beside what was
measured, as `table.py` does. Blocks of a launch do alike: two are simulated. Recurrent layers, whose blocks
wait for each other, are simulated whole, of 8 and of 24 steps, and each further step takes as long as
the last sixteen on average.

A case is planned anew. Where its engines and knobs are not those that were measured, `planned` has
those of today.

    benches/gpu/estimates.py benches/results/2026-11-26-h200 h200
    benches/gpu/estimates.py benches/results/2026-11-26-h200 h200 "H 512"     cases of such names
"""

import json
import pathlib
import re
import sys
import tempfile

import attention
import convolution
import fusion
import gradients
import peers
import problems
import rnn
import table

# Steps of recurrent layers that are simulated.
STEPS = (8, 24)


class Estimator:
    """Runs `kiln sass` on problems for a target."""

    def __init__(self, binary, target, folder):
        self.command = [binary, "sass", "--json", f"--device=sim:{target}"]
        self.path = pathlib.Path(folder) / "problem.json"

    def kernels(self, document, *options):
        """Engine and knobs, and microseconds, of a problem's kernels."""
        self.path.write_text(json.dumps(document))
        found = peers.run_kiln(*self.command, *options, str(self.path))
        if isinstance(found, dict):
            raise RuntimeError(found["error"])
        return [(each["config"], each["estimate"]["us"]) for each in found]

    def of_graph(self, graph):
        """Microseconds of a graph, and its engines and knobs."""
        kernels = self.kernels(graph.document(), "--sample=2")
        return sum(us for _, us in kernels), list(dict.fromkeys(config for config, _ in kernels))

    def of_network(self, case):
        """The same of a recurrent network."""
        few, more = STEPS
        runs = [self.kernels(rnn.network(case, steps)) for steps in STEPS]
        layers = [[of for of in kernels if of[0].startswith("rnn")] for kernels in runs]
        short, long = (sum(us for _, us in kernels) for kernels in layers)
        us = long + (case["steps"] - more) * (long - short) / (more - few)
        us += sum(self.of_graph(graph)[0] for graph in rnn.products(case))
        return us, list(dict.fromkeys(config for config, _ in layers[1]))


def chain(case):
    """The demo chain."""
    rows, columns = case["rows"], case["columns"]
    graph = problems.Graph()
    for name in ("x", "residual", "y"):
        graph.tensor(name, "bf16", [rows, columns])
    graph.tensor("bias", "bf16", [1, columns])
    for name in ("biased", "hidden", "sum"):
        graph.virtual(name, [rows, columns])
    graph.pointwise("add", ["x", "bias"], "biased")
    graph.pointwise("gelu_fwd", ["biased"], "hidden")
    graph.pointwise("add", ["hidden", "residual"], "sum")
    clip = {"relu_lower_clip": -1.0, "relu_upper_clip": 6.0}
    graph.then(pointwise="relu_fwd", inputs=["sum"], output="y", **clip)
    return graph


def estimate(estimator, part, case):
    """Microseconds of a case of a comparison, and its engines and knobs."""
    if part == "rnn":
        return estimator.of_network(case)
    if part == "fusion":
        graph = next(of["graph"] for of in fusion.cases(1) if of["name"] == case["name"])
    else:
        of_part = {"attention": attention, "convolution": convolution, "gradients": gradients}
        graph = chain(case) if part == "pointwise" else of_part[part].problem(case)
    return estimator.of_graph(graph)


def known_knobs(config):
    """A configuration without a knob that older results do not have, and that hardly costs time."""
    return re.sub(r"dynamic_k=\d, ", "", config)


def main():
    if len(sys.argv) < 3 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 0 if sys.argv[1:2] in (["-h"], ["--help"]) else 2
    results, target, only = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    binary = peers.find_binary()
    if binary is None:
        print("no binary `kiln`: cargo build --release, or $KILN_BINARY", file=sys.stderr)
        return 1
    path = results / "estimates.json"
    known = json.loads(path.read_text()) if path.is_file() else {}
    status = 0
    with tempfile.TemporaryDirectory() as folder:
        estimator = Estimator(binary, target, folder)
        for report in sorted(results.glob("*.json")):
            part = report.stem.partition("-")[0]
            if report == path:
                continue
            for case, group, name, own, _ in table.rows_of(report):
                # Blocks of causal gradients draw their tiles, of which the first have the least; a
                # pass in training is more than one problem.
                skipped = part == "gradients" and case["causal"] or "dropout" in case
                if skipped or only and not any(word in name for word in only):
                    continue
                try:
                    us, planned = estimate(estimator, part, case)
                except RuntimeError as error:
                    print(f"{group} {name}: {error}", file=sys.stderr)
                    status = 1
                    continue
                entry = {"us": round(us, 1)}
                measured = list(dict.fromkeys(case.get("kiln", {}).get("parts", planned)))
                if part == "rnn":
                    measured = [config for config in measured if config.startswith("rnn")]
                if [*map(known_knobs, measured)] != [*map(known_knobs, planned)]:
                    entry["planned"] = planned
                known[f"{group} {name}"] = entry
                peers.write(path, known)
                error = f"{100 * (us / own - 1):+5.0f} %"
                again = "  planned otherwise" if "planned" in entry else ""
                print(f"{group:24} {name:40} {own:9.1f} {us:9.1f} {error}{again}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
