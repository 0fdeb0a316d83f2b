"""The analysis commands on real files; analysis_tools.sh starts this."""

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import venv

import analysis_compare
import analysis_export
import analysis_runs
import analysis_watch
from analysis_runs import REGULON, command, ok, regulon, write

FIXTURE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fixtures", "metrics_v1.h5")
COMMANDS = {"watch": ["--once"], "convert-metrics": ["--csv"], "scaling": [], "compare": ["dp"]}
WRONG = {
    "plain": "plain/metrics.h5: not an HDF5 file",
    "missing": "missing: No such file or directory",
    "nothing": "nothing: no metrics.h5 in it",
    "round": "round/metrics.h5: Too many levels of symbolic links",
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


def test_ends():
    """A reader of stdout that goes away, no stdout, a full one; signals; a module that is not there."""
    calls = {name: [name, "dp", *(["ep"] if name == "compare" else more)] for name, more in COMMANDS.items()}
    for name, words in calls.items():
        out = subprocess.Popen([REGULON, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        out.stdout.close()
        said = out.stderr.read()
        ok(out.wait() == -signal.SIGPIPE and not said, f"{name}: ended by a closed pipe, without a word", said)
        shell = ["sh", "-c", '"$0" "$@" >&-', REGULON, *words]
        out = subprocess.run(shell, capture_output=True, text=True)
        ok(out.returncode == (name == "compare") and not out.stderr, f"{name}: without a stdout", out.stderr)
        with open("/dev/full", "w") as full:
            out = subprocess.run([REGULON, *words], stdout=full, stderr=subprocess.PIPE, text=True)
        ok(
            out.returncode == 74 and out.stderr == f"regulon-{name}: [Errno 28] No space left on device\n",
            f"{name}: a full disk, one line and 74",
            out.stderr,
        )
        os.makedirs("hidden", exist_ok=True)
        with open("hidden/numpy.py", "w") as file:
            file.write("raise ImportError(\"No module named 'numpy'\")\n")
        out = regulon(*words, env=os.environ | {"PYTHONPATH": os.path.abspath("hidden")})
        ok(
            out.returncode == 78 and out.stderr.count("\n") == 1 and "apt-get install python3-numpy" in out.stderr,
            f"{name}: without numpy, one line and 78",
            out.stderr,
        )
    write("long.h5", 2000, 2000)
    for number in (signal.SIGINT, signal.SIGTERM):
        os.mkfifo("out.csv.tmp")  # where the file is made: written until the pipe is full
        reader = os.open("out.csv.tmp", os.O_RDONLY | os.O_NONBLOCK)
        words = [REGULON, "convert-metrics", "long.h5", "--csv", "out.csv"]
        heard = lambda number=number: signal.signal(number, signal.SIG_DFL)  # a shell's `&` has SIGINT ignored
        out = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, preexec_fn=heard)
        ready = select.select([reader], [], [], 60)[0]
        out.send_signal(number)
        said = out.stderr.read()
        ok(
            ready and out.wait() == -number and not said and not os.path.exists("out.csv.tmp"),
            f"{number.name} ends a conversion, which leaves nothing",
            f"{out.returncode} {said}",
        )
        os.close(reader)


def test_other_python():
    """The first python3 of PATH has no h5py: the configured one takes over, or both are named."""
    venv.create("bare", with_pip=False)
    shutil.copytree(analysis_runs.ANALYSIS, "tools")
    with open("tools/command.py") as file:
        text = file.read()
    bare = os.path.abspath("bare/bin")
    for configured, code in ((sys.executable, 0), (f"{bare}/python", 78), ("/no/python3", 78)):
        with open("tools/command.py", "w") as file:
            file.write(re.sub('^CONFIGURED = ".*?"', f'CONFIGURED = "{configured}"', text, flags=re.M))
        environment = os.environ | {"PATH": f"{bare}:{os.environ['PATH']}"}
        out = subprocess.run(["tools/regulon-compare", "dp", "dp"], capture_output=True, text=True, env=environment)
        named = f"{bare}/python3" + f" and {configured}" * os.path.exists(configured)
        want = f"regulon-compare: {named}: No module named 'numpy': apt-get install python3-numpy python3-h5py, "
        ok(
            out.returncode == code and (not out.stderr if code == 0 else out.stderr.startswith(want)),
            f"python3 without h5py, configured {os.path.basename(os.path.dirname(configured))}: {code}",
            f"{out.returncode} {out.stderr}",
        )


def test_first_version():
    """The first files of version 1 lack /timing/total."""
    shutil.copy(FIXTURE, "first.h5")
    for name, more in COMMANDS.items():
        out = command(name, "first.h5", *{"compare": ["first.h5"], "scaling": ["--warmup", "0"]}.get(name, more))
        ok(out.returncode == 0, f"{name}: a file of the first version", out.stderr)


if __name__ == "__main__":
    folder = analysis_runs.make_runs()
    try:
        analysis_export.run_all()
        analysis_compare.run_all()
        analysis_watch.run_all(60 if sys.argv[1:] == ["minute"] else 2)
        test_wrong_input()
        test_first_version()
        test_ends()
        test_other_python()
    finally:
        analysis_watch.kill_jobs()
        os.chdir("/")
        shutil.rmtree(folder)
    print(f"1..{analysis_runs.count}")
