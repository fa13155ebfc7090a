"""Runs the tests of numba-cuda, each module in a process of its own with a time limit, and compares
what fails with a list of what is known to.

    numba_tests.py EXPECTED TABLE [MODULE ...]     run modules (all) and compare
    numba_tests.py --one MODULE [COUNT]            run one module but for the first tests, results
                                                   as JSON lines

A test after which the device works no more (a kernel failed on it) is the last of its process, as
the driver's document asks; the next one begins in another.
"""

import collections
import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

# What a device that has failed says of itself, and the status of a process that ends for it.
STICKY = ["ILLEGAL_ADDRESS", "ILLEGAL_INSTRUCTION", "LAUNCH_FAILED", "LAUNCH_TIMEOUT",
          "MISALIGNED_ADDRESS", "CUDA_ERROR_ASSERT"]
AGAIN = 75
# How the driver tells what the checks found: the kernel, then the kind and where.
FINDING = re.compile("kiln-sim-driver: `[^`]*`: ")
# Seconds that a process may take, and processes at once.
LIMIT = int(os.environ.get("NUMBA_TESTS_LIMIT", "600"))
JOBS = int(os.environ.get("NUMBA_TESTS_JOBS", "2"))


class Recorder(unittest.TestResult):
    """Tells each test's outcome as it ends."""

    def tell(self, test, outcome, reason=""):
        line = {"test": test.id(), "outcome": outcome, "reason": reason}
        print("RESULT " + json.dumps(line), file=sys.__stderr__, flush=True)

    def startTest(self, test):
        super().startTest(test)
        self.failed = None

    def addError(self, test, err):
        self.failed = last_line(err)
        if not isinstance(test, unittest.TestCase):
            self.tell(test, "failed", self.failed)

    def addFailure(self, test, err):
        self.failed = last_line(err)

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.failed = last_line(err)

    def addSkip(self, test, reason):
        self.tell(test, "skipped", reason)
        self.failed = ""

    def addExpectedFailure(self, test, err):
        self.tell(test, "passed", "fails as it says")
        self.failed = ""

    def addUnexpectedSuccess(self, test):
        self.failed = "succeeds where its authors expect a failure"

    def stopTest(self, test):
        super().stopTest(test)
        if self.failed is None:
            self.tell(test, "passed")
        elif self.failed.startswith("Skipped: "):
            # As pytest says it from within a test.
            self.tell(test, "skipped", self.failed)
        elif self.failed:
            self.tell(test, "failed", self.failed)
        if device_failed():
            sys.__stderr__.flush()
            os._exit(AGAIN)


def device_failed():
    """Whether the device of this process, if it has one, has failed."""
    from cuda.bindings import driver

    code = driver.cuCtxSynchronize()[0].name
    return any(name in code for name in STICKY)


def last_line(err):
    """The exception, by its type and the first line of its text that says something."""
    text = [line.strip() for line in str(err[1]).splitlines() if line.strip()]
    return f"{err[0].__name__}: {' / '.join(text)[:300]}"


def flat(suite):
    for test in suite:
        yield from flat(test) if isinstance(test, unittest.TestSuite) else [test]


def one(module, skip):
    try:
        imported = importlib.import_module(module)
    except BaseException as error:
        if type(error).__name__ != "Skipped":
            raise
        line = {"test": f"{module}.(all)", "outcome": "skipped", "reason": f"Skipped: {error}"}
        print("RESULT " + json.dumps(line), file=sys.__stderr__, flush=True)
        return
    suite = unittest.defaultTestLoader.loadTestsFromModule(imported)
    unittest.TestSuite(list(flat(suite))[skip:]).run(Recorder())


def run(module):
    """Results of a module; what a process leaves unsaid failed with it."""
    start, results, findings, again = time.monotonic(), [], [], True
    while again:
        command = [sys.executable, "-W", "ignore", __file__, "--one", module, str(len(results))]
        status, said = None, f"not done after {LIMIT} s"
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
            status, text = done.returncode, done.stderr
        except subprocess.TimeoutExpired as error:
            text = (error.stderr or b"").decode(errors="replace")
        lines = text.splitlines()
        mine = [json.loads(line[7:]) for line in lines if line.startswith("RESULT ")]
        results += mine
        findings += [f"{module}: {line}" for line in lines if FINDING.match(line)]
        again = status == AGAIN and mine
        if status != 0 and not again:
            rest = [line for line in lines if not line.startswith("RESULT ") and line.strip()]
            if status is not None:
                said = f"exit status {status}: {rest[-1][:300] if rest else ''}"
            results.append({"test": f"{module}.(process)", "outcome": "failed", "reason": said})
    told = f", {len(findings)} findings" if findings else ""
    print(f"{module}: {len(results)} in {time.monotonic() - start:.1f} s{told}", flush=True)
    return results, findings


def modules():
    import numba.cuda.tests as tests

    found = pkgutil.walk_packages(tests.__path__, tests.__name__ + ".")
    return [it.name for it in found if it.name.rsplit(".", 1)[1].startswith("test_")]


def main(expected_path, table_path, chosen):
    wanted = [name for name in modules() if not chosen or any(part in name for part in chosen)]
    with ThreadPoolExecutor(JOBS) as pool:
        ran = list(pool.map(run, wanted))
    results = [result for all, _ in ran for result in all]
    with open(table_path + ".findings", "w") as file:
        file.writelines(f"{finding}\n" for _, all in ran for finding in all)
    results.sort(key=lambda result: result["test"])
    with open(table_path, "w") as table:
        for result in results:
            table.write(f"{result['outcome']}\t{result['test']}\t{result['reason']}\n")
    counts = collections.Counter(result["outcome"] for result in results)
    print(f"{len(results)} tests: {counts['passed']} passed, {counts['failed']} failed, "
          f"{counts['skipped']} skipped; table in {table_path}")
    for reason, count in collections.Counter(
        result["reason"][:90] for result in results if result["outcome"] == "skipped"
    ).most_common():
        print(f"  skipped {count}: {reason}")
    with open(expected_path) as file:
        entries = [line.split("#")[0].strip() for line in file]
    expected = {entry for entry in entries if entry}
    failed = {result["test"]: result["reason"] for result in results
              if result["outcome"] == "failed"}
    new = {test: reason for test, reason in failed.items() if test not in expected}
    passed = {result["test"] for result in results if result["outcome"] == "passed"}
    for test in sorted(expected & passed):
        print(f"passes and is listed as failing: {test}")
    for test, reason in new.items():
        print(f"fails and is not listed: {test}: {reason}")
    return 1 if new else 0


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        one(sys.argv[2], int(sys.argv[3]))
    else:
        sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
