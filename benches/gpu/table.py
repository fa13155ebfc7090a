#!/usr/bin/env python3
"""Prints the results of a folder, what run.sh left in $OUT, as a table in Markdown.

Of every case: Kiln's time, that of the fastest peer, how many times faster Kiln is, and, where the
folder has estimates.json, the time that `estimates.py` found from machine code, with its error: with a
star where engines or knobs are not those that were measured.

    benches/gpu/table.py benches/results/2026-11-26-h200 > benches/results/2026-11-26-h200/table.md
"""

import json
import pathlib
import sys

import attention
import convolution
import gradients
import peers
import rnn

DESCRIBE = {
    "attention": attention.describe,
    "convolution": convolution.describe,
    "gradients": gradients.describe,
    "rnn": rnn.describe,
}


def rows_of(path):
    """Of every case itself, its group, its name, Kiln's microseconds, and the peers' by name."""
    report = json.loads(path.read_text())
    part = path.stem.partition("-")[0]
    for case in report.get("cases", []):
        shape = {key: value for key, value in case.items() if key != "kiln"}
        name = DESCRIBE.get(part, lambda case: case["name"])(shape)
        group, own = f"{part}: {case['group']}", case["kiln"].get("pass_us")
        yield case, group, name, own, case.get("peers", {})
    for size in report.get("sizes", []):
        times = {
            name: {"us": result["median_ms"] * 1e3}
            for name, result in size["results"].items()
            if "median_ms" in result
        }
        own = times.pop("kiln", {}).get("us")
        yield size, "pointwise", f"{size['rows']} x {size['columns']}", own, times


def main():
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 0 if len(sys.argv) == 2 else 2
    folder = pathlib.Path(sys.argv[1])
    estimated = folder / "estimates.json"
    estimates = json.loads(estimated.read_text()) if estimated.is_file() else {}
    reports = [path for path in sorted(folder.glob("*.json")) if path != estimated]
    group = None
    for path in reports:
        for _, of, name, own, others in rows_of(path):
            if of != group:
                group = of
                print(f"\n### {group}\n")
                print("| case | Kiln us | fastest peer | us | faster | estimate us | error |")
                print("|---|---|---|---|---|---|---|")
            best = min(
                (peer for peer in others if "us" in others[peer]),
                key=lambda peer: others[peer]["us"],
                default=None,
            )
            us = best and others[best]["us"]
            guess = estimates.get(f"{group} {name}", {})
            guess, star = guess.get("us"), "*" if "planned" in guess else ""
            cells = [
                name,
                f"{own:.1f}" if own else "-",
                best or "-",
                f"{us:.1f}" if us else "-",
                f"{us / own:.2f}x" if us and own else "-",
                f"{guess:.1f}" if guess else "-",
                f"{100 * (guess / own - 1):+.0f} %" if guess and own else "-",
            ]
            print(f"| {' | '.join(cells)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
