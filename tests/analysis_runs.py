"""What the tests of the analysis commands share: TAP, the commands, and a few short real runs."""

import contextlib
import importlib.machinery
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import tempfile

import h5py

REGULON = os.path.abspath("regulon")
WRITER = os.path.abspath("tests/metrics.np1")  # writes rows whose values are functions of the step
MPIEXEC = os.environ.get("MPIEXEC", "mpiexec").split()
os.environ["PATH"] = os.path.dirname(sys.executable) + ":" + os.environ["PATH"]  # `python3` is this one
DECK = (
    "train L0_sanity train.verdict=false checkpoint.save_final_model=false dataset.token_micro_batch_size=256 "
    "dataset.holdout_by=block dataset.holdout_share=0.1 dataset.holdout_block=1000 validation.enabled=true "
    "validation.eval_interval=5 validation.num_batches=4 logger.frequency=1"
).split()
os.environ["OMP_NUM_THREADS"] = "1"  # a core a rank
os.environ["MPLBACKEND"] = "Agg"
ANALYSIS = os.path.join(os.path.abspath(os.environ.get("srcdir", ".")), "analysis")
modules = {}
count = 0


def ok(good, what, why=""):
    global count
    count += 1
    print(f"{'ok' if good else 'not ok'} {count} - {what}", flush=True)
    if not good and why:
        print("# " + "\n# ".join(str(why).split("\n")), flush=True)


def skip(what, why):
    global count
    count += 1
    print(f"ok {count} - {what} # SKIP {why}", flush=True)


def regulon(*words, **more):
    """The finished process of `regulon WORD...`."""
    return subprocess.run([REGULON, *map(str, words)], capture_output=True, text=True, timeout=200, **more)


def module(name):
    """A file of analysis/ as a module."""
    if ANALYSIS not in sys.path:
        sys.path.insert(0, ANALYSIS)
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), os.path.join(ANALYSIS, name))
    found = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(found)
    return found


def command(name, *words):
    """What regulon() returns, by calling the command here, which is quicker."""
    if name not in modules:
        modules[name] = module(f"regulon-{name}")
    argv, sys.argv = sys.argv, [f"regulon-{name}", *map(str, words)]
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            modules[name].command.run(modules[name].main)
    except SystemExit as end:
        code = end.code
    finally:
        sys.argv = argv
    out.seek(0), err.seek(0)
    return subprocess.CompletedProcess(words, code, out.read(), err.read())


def train(ranks, folder, *words, code=0):
    run = subprocess.run(
        [*MPIEXEC, "-n", str(ranks), REGULON, *DECK, f"checkpoint.ckpt_dir={folder}", *words],
        capture_output=True,
        text=True,
        timeout=200,
    )
    if run.returncode != code:
        raise SystemExit(f"Bail out! {folder}: exit {run.returncode}\n{run.stderr}")


def write(path, rows, room, close=1, **more):
    subprocess.run(
        [WRITER, "write", path, str(rows), str(room), "0", str(close)], stdout=subprocess.DEVNULL, check=True, **more
    )


def make_runs():
    """Enters a new folder with runs in it; returns its name, to be removed."""
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    train(1, "one", "num_train_steps=20", "grad_acc_steps=2", "parallelism.ep_size=1")
    train(2, "dp", "num_train_steps=20", "parallelism.ep_size=1")
    train(2, "ep", "num_train_steps=20")
    train(2, "resumed", "num_train_steps=10", "checkpoint.save_every_n_steps=10")
    train(2, "resumed", "num_train_steps=20", "checkpoint.save_every_n_steps=10")
    train(
        1,
        "skipped",
        "num_train_steps=60",
        "parallelism.ep_size=1",
        *"optimizer.lr=10 optimizer.weight_decay=10 " "optimizer.max_grad_norm=0 train.max_bad_steps=3".split(),
        code=76,
    )
    eight = "precision.recipe=mxfp8 precision.emulate=true precision.statistics_every_n_steps=3".split()
    train(1, "eight", "num_train_steps=8", "parallelism.ep_size=1", *eight, "precision.last_layers_bf16=1")
    os.mkdir("empty")
    write("empty/metrics.h5", 0, 30)
    shutil.copytree("empty", "begun")
    write("begun/metrics.h5", 0, 30, close=0)
    os.mkdir("plain")
    open("plain/metrics.h5", "w").write("no HDF5\n")
    with h5py.File("other.h5", "w") as f:
        f["x"] = 1
    with h5py.File("newer.h5", "w") as f:
        f.attrs["format"], f.attrs["format_version"] = "regulon metrics", 2
    with h5py.File("corpus.h5", "w") as f:
        f.attrs["format"], f.attrs["format_version"] = "regulon corpus", 1
    os.mkdir("nothing")
    os.mkdir("round")
    os.symlink("metrics.h5", "round/metrics.h5")  # a file that is there and cannot be opened, also by root
    return folder
