#!/usr/bin/env python3
"""Runs the integration tests so that a fault on the GPU costs one group, not the run.

After an illegal address, a trap or a hang every call of a process on its context fails. So each
module's tests are a group with a process of its own, and each run of cases (case_runs); the other
groups go on. Then every test that failed, or that its group did not get to, runs once more, alone
in a process whose launches block (CUDA_LAUNCH_BLOCKING=1): the one that fails again is named, with
its error and the kernel.

Results are written as they come: one JSON line a test to check.jsonl, the output of each process to
check/, and the summary to check.txt, all in $OUT (or ./out). --resume goes on with those results
where --limit ended a call. The exit status is 1 if a test failed or did not run, 2 if there are
none.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import selectors
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# A line of libtest for a finished test.
LINE = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. (ok|FAILED|ignored)", re.MULTILINE)
# What a failed test printed, in libtest's list of failures.
FAILURE = re.compile(r"^---- (\S+) stdout ----\n(.*?)(?=^---- |^failures:$|\Z)", re.M | re.S)
OUTCOMES = {"ok": "passed", "FAILED": "failed", "ignored": "ignored"}
# How Kiln's errors say that the device is lost (src/device/health.rs).
LOST = re.compile(r"the device is lost: (\w+)(.*)")
# What a test tells of each kernel before its launch (KILN_TEST_LAUNCHES=1).
LAUNCH = re.compile(r"TRACE kiln::device::cuda\w*: launch (\S+)")
KILL_WAIT_S = 30
# Modules of few long tests, each of which is a group: they run first.
APART = ("case_runs",)


def tests_of(binary, filters):
    """Names of the tests, in order. The filters are those of libtest: parts of names."""
    listed = subprocess.run(
        [binary, "--list", "--format", "terse", *filters],
        capture_output=True,
        text=True,
        check=True,
    )
    suffix = ": test"
    lines = listed.stdout.splitlines()
    return [line.removesuffix(suffix) for line in lines if line.endswith(suffix)]


def groups_of(tests):
    """The tests of each module, and those that are apart."""
    groups = collections.defaultdict(list)
    for test in sorted(tests, key=lambda test: not test.startswith(APART)):
        module = test.rpartition("::")[0]
        groups[test if module in APART else module or test].append(test)
    return groups


class Process:
    """The outcome of one process: its exit status, None where it was killed, output and time."""

    def __init__(self, command, environment, log, silence_s, deadline):
        """Runs a command to its end, or until it has said nothing for `silence_s` seconds: neither
        that a test has ended nor that a kernel was launched."""
        self.text, self.killed = "", None
        start = heard = time.monotonic()
        said = 0
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "wb") as sink:
            child = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=sink,
                start_new_session=True,
            )
            os.set_blocking(child.stdout.fileno(), False)
            with selectors.DefaultSelector() as selector:
                selector.register(child.stdout, selectors.EVENT_READ)
                while True:
                    now = time.monotonic()
                    # Standard error goes to the file by its own descriptor.
                    size = os.fstat(sink.fileno()).st_size
                    if size > said:
                        said, heard = size, now
                    if now > deadline:
                        self.killed = "the limit of this call"
                    elif now > heard + silence_s:
                        self.killed = f"{silence_s:g} s without a launch or the end of a test"
                    if self.killed:
                        break
                    if not selector.select(min(max(deadline - now, 0.01), 1)):
                        continue
                    chunk = os.read(child.stdout.fileno(), 1 << 16)
                    if not chunk:
                        break
                    sink.seek(0, os.SEEK_END)
                    sink.write(chunk)
                    sink.flush()
                    self.text += chunk.decode(errors="replace")
            self.status = self.end(child)
        self.seconds = time.monotonic() - start
        self.log = log

    def end(self, child):
        """Waits for a child that closed its output, and ends one that shall not go on, with what it
        started."""
        if self.killed is None:
            try:
                return child.wait(KILL_WAIT_S)
            except subprocess.TimeoutExpired:
                self.killed = "its output closed and it did not exit"
        try:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait(KILL_WAIT_S)
        except ProcessLookupError:
            child.wait()
        except subprocess.TimeoutExpired:
            self.killed += "; it does not die"
        return None

    def outcomes(self):
        """Outcomes by test, of the tests that finished."""
        return {test: OUTCOMES[word] for test, word in LINE.findall(self.text)}

    def whole(self):
        """Standard output and standard error."""
        return self.log.read_text(errors="replace")

    def fate(self):
        """How the process ended, if not by itself."""
        if self.killed:
            return "timed out", self.killed
        if self.status < 0:
            return "crashed", f"ended by {signal.Signals(-self.status).name}"
        return "crashed", f"exit status {self.status}"


def loss(text):
    """What Kiln said of a lost device, if it did: the driver's code and the kernels."""
    found = LOST.search(text)
    if not found:
        return None
    return {"code": found[1], "kernels": re.findall(r"`([^`]+)`", found[2])}


def reason(text):
    """The line that says why a test failed: what follows the place of its panic."""
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not LAUNCH.match(line)]
    for at, line in enumerate(lines[:-1]):
        if " panicked at " in line:
            # Of several failures the first one, too.
            count = 2 if lines[at + 1].endswith(" failed:") else 1
            return " ".join(lines[at + 1 : at + 1 + count])[:600]
    return next((line[:400] for line in lines if LOST.search(line)), "")


class Check:
    """A run: its options, and the results so far, which are on disk."""

    def __init__(self, options, out):
        self.options, self.out = options, out
        self.lock = threading.Lock()
        limit = options.limit or float("inf")
        self.deadline = time.monotonic() + limit
        self.results = out / "check.jsonl"
        self.groups = groups_of(tests_of(options.binary, options.filters))
        # The last record of each test, by whether it ran alone.
        self.together, self.alone = {}, {}
        if options.resume and self.results.is_file():
            for line in self.results.read_text().splitlines():
                self.keep(json.loads(line))
        else:
            self.results.write_text("")

    def keep(self, record):
        """Takes a record into account."""
        (self.alone if record["alone"] else self.together)[record["test"]] = record

    def write(self, records):
        """Adds records to the file, says what failed, and writes the summary anew."""
        with self.lock:
            with open(self.results, "a") as file:
                for record in records:
                    file.write(json.dumps(record) + "\n")
            for record in records:
                self.keep(record)
                if record["alone"] or record["outcome"] in ("crashed", "timed out"):
                    print(shown(record), flush=True)
            (self.out / "check.txt").write_text(self.summary())

    def group(self, name):
        """Runs the tests of a group in one process."""
        tests = [test for test in self.groups[name] if test not in self.together]
        if not tests or time.monotonic() > self.deadline:
            return
        ran = self.process(f"{name.replace('::', '.')}.log", ["--exact", *tests])
        finished, texts = ran.outcomes(), dict(FAILURE.findall(ran.text))
        records, unfinished = [], []
        for test in tests:
            record = {"test": test, "group": name, "alone": False}
            outcome = finished.get(test, "passed" if ran.status == 0 else None)
            if outcome is None:
                unfinished.append(record)
                continue
            records.append(record | {"outcome": outcome})
            if outcome == "failed":
                text = texts.get(test, "")
                records[-1] |= {"lost": loss(text), "error": reason(text)}
        if unfinished and ran.killed == "the limit of this call":
            # They run in the next call.
            unfinished = []
        for record in unfinished:
            fate, why = ran.fate()
            records.append(record | {"outcome": fate, "error": why})
        passed = sum(record["outcome"] == "passed" for record in records)
        print(f"{name}: {passed} of {len(tests)} passed, {ran.seconds:.0f} s", flush=True)
        self.write(records)

    def again(self, test):
        """Runs a test alone, its launches blocking."""
        if time.monotonic() > self.deadline:
            return
        arguments = ["--exact", test, "--nocapture", "--test-threads=1"]
        name = f"alone/{test.replace('::', '.')}.log"
        ran = self.process(name, arguments, CUDA_LAUNCH_BLOCKING="1")
        if ran.killed == "the limit of this call":
            return
        text = ran.whole()
        record = {"test": test, "group": self.together[test]["group"], "alone": True}
        if ran.status == 0:
            record |= {"outcome": "passed"}
        elif ran.status == 101:
            # What libtest exits with after a failed test.
            record |= {"outcome": "failed", "error": reason(text)}
        else:
            fate, why = ran.fate()
            said = reason(text)
            record |= {"outcome": fate, "error": f"{why}: {said}" if said else why}
        if record["outcome"] != "passed":
            record |= {"lost": loss(text)}
            if record["outcome"] == "timed out":
                # The last one that was launched has not ended.
                record |= {"last_launched": next(iter(LAUNCH.findall(text)[-1:]), None)}
        self.write([record | {"seconds": round(ran.seconds, 1), "log": str(ran.log)}])

    def process(self, log, arguments, **variables):
        """Runs the tests' binary."""
        options = self.options
        own = {"KILN_DEVICE": options.device, "KILN_TEST_LAUNCHES": "1"}
        environment = os.environ | own | variables
        command = [options.binary, *arguments]
        place = self.out / "check" / log
        return Process(command, environment, place, options.timeout, self.deadline)

    def run(self):
        """Every group, then the tests that failed, alone; the exit status."""
        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            list(pool.map(self.group, self.groups))
            suspects = [
                test
                for test in self.tests()
                if self.together.get(test, {}).get("outcome") not in (None, "passed", "ignored")
                and test not in self.alone
            ]
            list(pool.map(self.again, suspects))
        text = self.summary()
        (self.out / "check.txt").write_text(text)
        print("\n" + text, end="", flush=True)
        return 0 if all(not bad for _, bad in self.verdicts().values()) else 1

    def tests(self):
        return [test for tests in self.groups.values() for test in tests]

    def verdicts(self):
        """What is known of each test, and whether it is bad."""
        guilty = {of["group"] for of in self.alone.values() if of["outcome"] != "passed"}
        verdicts = {}
        for test in self.tests():
            first, second = self.together.get(test), self.alone.get(test)
            if first is None:
                verdict = ("did not run", True)
            elif first["outcome"] in ("passed", "ignored"):
                verdict = (first["outcome"], False)
            elif second is None:
                verdict = (f"{first['outcome']} in its group, did not run alone", True)
            elif second["outcome"] != "passed":
                verdict = (second["outcome"], True)
            elif first["group"] in guilty and (first["outcome"] != "failed" or first.get("lost")):
                verdict = ("passed alone, after another test of its group had a fault", False)
            else:
                verdict = (f"{first['outcome']} in its group, passed alone", True)
            verdicts[test] = verdict
        return verdicts

    def summary(self):
        """Counts, and a paragraph for each test that is bad."""
        verdicts = self.verdicts()
        counts = collections.Counter(text for text, _ in verdicts.values())
        lines = [f"{count:5} {text}" for text, count in counts.most_common()]
        for test, (text, bad) in verdicts.items():
            known = self.alone.get(test) or self.together.get(test)
            if bad and known:
                lines += ["", shown(known | {"outcome": text})]
        return "\n".join(lines) + "\n"


def shown(record):
    """A record as text: the test, what became of it, why, and where its output is."""
    lines = [f"{record['test']}: {record['outcome']}"]
    lost = record.get("lost")
    if lost:
        kernels = ", ".join(lost["kernels"]) or "not known"
        lines.append(f"    lost the device: {lost['code']}, kernel: {kernels}")
    if record.get("last_launched"):
        lines.append(f"    launched last: {record['last_launched']}")
    if record.get("error"):
        lines.append(f"    {record['error']}")
    if record.get("log"):
        lines.append(f"    {record['log']}")
    return "\n".join(lines)


def main():
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("filters", nargs="*", metavar="NAME", help="only tests whose name has it")
    options.add_argument("--binary", default=str(ROOT / "out/gpu/it"), help="the tests")
    options.add_argument("--device", default=os.environ.get("KILN_DEVICE") or "cuda:0")
    options.add_argument(
        "--timeout",
        type=float,
        default=180,
        metavar="S",
        help="seconds after which a process ends that says of no launch and of no test's end",
    )
    options.add_argument(
        "--limit", type=float, metavar="S", help="seconds after which nothing is started"
    )
    options.add_argument("--resume", action="store_true", help="go on with the results in $OUT")
    options.add_argument(
        "--jobs",
        type=int,
        default=max((os.cpu_count() or 1) // 4, 1),
        help="processes at once (a quarter of the cores)",
    )
    options = options.parse_args()
    out = pathlib.Path(os.environ.get("OUT") or "out").resolve()
    out.mkdir(parents=True, exist_ok=True)
    check = Check(options, out)
    if not check.groups:
        print(f"no test has {options.filters} in its name", file=sys.stderr)
        return 2
    return check.run()


if __name__ == "__main__":
    sys.exit(main())
