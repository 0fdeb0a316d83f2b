"""The analysis commands on real files; analysis_tools.sh starts this."""

import os
import shutil
import sys

import analysis_compare
import analysis_export
import analysis_runs
import analysis_watch
from analysis_runs import command, ok, regulon

FIXTURE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fixtures", "metrics_v1.h5")
COMMANDS = {"watch": ["--once"], "convert-metrics": ["--csv"], "scaling": [], "compare": ["dp"]}
WRONG = {
    "plain": "plain/metrics.h5: not an HDF5 file",
    "missing": "missing: No such file or directory",
    "nothing": "nothing: no metrics.h5 in it",
    "resumed/step_000000010": "resumed/step_000000010: a checkpoint, not a run",
    "resumed/step_000000010/index.h5": "resumed/step_000000010/index.h5: "
    "a 'regulon checkpoint' file where 'regulon metrics' is wanted",
    "corpus.h5": "corpus.h5: a 'regulon corpus' file where 'regulon metrics' is wanted",
    "other.h5": "other.h5: no 'regulon metrics' file: it has no attribute 'format'",
    "newer.h5": "newer.h5: format_version 2 of 'regulon metrics' is newer than this program reads (1)",
}


def test_wrong_input():
    for name, more in COMMANDS.items():
        bad = []
        for path, text in WRONG.items():
            out = command(name, path, *more)
            if out.returncode != 65 or out.stderr != f"regulon-{name}: {text}\n" or out.stdout:
                bad.append(f"{path}: {out.returncode} {out.stderr}{out.stdout}")
        ok(not bad, f"{name}: files that are no runs, one line and 65", "\n".join(bad))
        out = regulon(name, "--wrong")
        ok(
            out.returncode == 64 and len(out.stderr.splitlines()) == 1,
            f"{name}: a wrong word, one line and 64",
            out.stderr,
        )


def test_first_version():
    """The first files of version 1 lack /timing/total."""
    shutil.copy(FIXTURE, "first.h5")
    for name, more in COMMANDS.items():
        out = command(name, "first.h5", *(["first.h5"] if name == "compare" else more))
        ok(out.returncode == 0, f"{name}: a file of the first version", out.stderr)


if __name__ == "__main__":
    folder = analysis_runs.make_runs()
    try:
        analysis_export.run_all()
        analysis_compare.run_all()
        analysis_watch.run_all(60 if sys.argv[1:] == ["minute"] else 2)
        test_wrong_input()
        test_first_version()
    finally:
        analysis_watch.kill_jobs()
        os.chdir("/")
        shutil.rmtree(folder)
    print(f"1..{analysis_runs.count}")
