"""watch: in a terminal of its own (a pty), beside a job, after kill -9; and the commands read beside a writer."""

import fcntl
import io
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import termios
import threading
import time

import h5py
import numpy as np
from analysis_export import agree, expected, read_csv
from analysis_runs import DECK, MPIEXEC, REGULON, WRITER, command, module, modules, ok, regulon

LEAVE = "\x1b[?25h\x1b[?1049l"


class Terminal:
    """A command in a terminal of 100 x 40; its screen is what the last frame drew. own: it rules the command's jobs."""

    def __init__(self, *words, size=(100, 40), own=True):
        self.master, self.slave = pty.openpty()
        self.resize(*size)
        self.before = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen(
            [REGULON, *words],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            start_new_session=True,
            env=os.environ | {"LC_ALL": "C.UTF-8"},
            preexec_fn=(lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) if own else None,
        )
        self.text = ""

    def resize(self, width, height):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def read(self, seconds):
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and select.select([self.master], [], [], left)[0]:
            self.text += os.read(self.master, 65536).decode("utf-8", "replace")

    def until(self, found, seconds=60):
        """Reads until found(self) or the time is over."""
        end = time.monotonic() + seconds
        while not found(self) and time.monotonic() < end:
            self.read(0.1)
        return found(self)

    def frames(self):
        return [f.split("\x1b[K\r\n") for f in self.text.split("\x1b[H")[1:]]

    def ended(self):
        """The exit code, and whether the terminal is as it was."""
        self.until(lambda _: self.process.poll() is not None)  # read meanwhile: a full terminal would stop it
        code = self.process.wait(timeout=1)
        self.read(0.3)
        as_it_was = termios.tcgetattr(self.slave) == self.before and self.text.count(LEAVE) == self.text.count(
            "\x1b[?1049h"
        )
        os.close(self.master)
        os.close(self.slave)
        return code, as_it_was


def start_job(folder):
    """A job that goes on until it is told to stop; it has logged a step when this returns."""
    job = subprocess.Popen(
        [
            *MPIEXEC,
            "-n",
            "1",
            REGULON,
            *DECK,
            f"checkpoint.ckpt_dir={folder}",
            "num_train_steps=20000",
            "parallelism.ep_size=1",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    for line in job.stdout:
        if line.split()[0] == "1":
            return job
    raise SystemExit(f"Bail out! no job in {folder}")


def kill_jobs():
    """Those of this folder: a launcher's ranks are in sessions of their own."""
    for name in os.listdir("/proc"):
        try:
            if (
                name.isdigit()
                and os.readlink(f"/proc/{name}/cwd") == os.getcwd()
                and os.readlink(f"/proc/{name}/exe") == os.path.realpath(REGULON)
            ):
                os.kill(int(name), signal.SIGKILL)
        except OSError:
            pass


def drain(job):
    job.stdout.read()
    return job.wait()


def shows_step(terminal):
    frames = terminal.frames()
    return len(frames) >= 2 and any(re.match(r" step \d+ of 20000 ", line) for line in frames[-2])


def test_terminal():
    job = start_job("live")
    for leave in ("q", "Ctrl-C"):
        screen = Terminal("watch", "live", "--interval", "0.2")
        seen = screen.until(shows_step)
        frame = screen.frames()[-2] if seen else []
        whole = (
            any("running on" in line for line in frame)
            and any("expert load" in line for line in frame)
            and len(frame) <= 40
        )
        os.write(screen.master, b"x" + (b"q" if leave == "q" else b"\x03"))
        code, as_it_was = screen.ended()
        ok(
            seen and whole and code == 0 and as_it_was,
            f"a frame of a job that runs; {leave} ends it, the terminal is as it was",
            f"exit {code} {as_it_was}\n" + screen.text[-3000:],
        )
    screen = Terminal("watch", "live", "--interval", "0.2", own=False)
    seen = screen.until(shows_step)
    os.write(screen.master, b"q")
    code, as_it_was = screen.ended()
    ok(seen and code == 0 and as_it_was, "also in a terminal that rules no jobs", f"exit {code} {screen.text[-1000:]}")
    screen = Terminal("watch", "live", "--interval", "600")
    screen.until(lambda s: s.frames())
    screen.read(0.3)
    n = len(screen.frames())
    screen.resize(50, 12)
    os.kill(screen.process.pid, signal.SIGWINCH)
    redrawn = screen.until(lambda s: len(s.frames()) > n)
    screen.read(0.3)
    frame = screen.frames()[-1]
    ok(
        redrawn
        and len(frame) <= 12
        and all(len(line.replace("\x1b[K", "").replace("\x1b[J", "")) < 50 for line in frame),
        "a new size is followed at once",
        "\n".join(frame),
    )
    os.kill(screen.process.pid, signal.SIGTSTP)
    stopped = os.waitpid(screen.process.pid, os.WUNTRACED)[1]
    screen.read(0.3)
    while_stopped = screen.text.count(LEAVE)
    os.kill(screen.process.pid, signal.SIGCONT)
    goes_on = screen.until(lambda s: s.text.count("\x1b[?1049h") == 2 and len(s.frames()) > n + 1)
    screen.process.terminate()
    code, as_it_was = screen.ended()
    ok(
        os.WIFSTOPPED(stopped) and while_stopped == 1 and goes_on,
        "Ctrl-Z leaves the terminal as it was, and it goes on afterwards",
    )
    ok(code == 128 + signal.SIGTERM and as_it_was, "so does TERM", f"exit {code}")

    screen = Terminal("watch", "live", "--interval", "0.2")
    with open("plain.out", "w") as out:
        plain = subprocess.Popen([REGULON, "watch", "live", "--interval", "0.2"], stdout=out)
    screen.until(shows_step)
    deadline = time.time() + 60  # the run goes on until both have seen it
    while " running on " not in open("plain.out").read() and time.time() < deadline:
        time.sleep(0.1)
    open("live/stop", "w").close()
    drain(job)
    code, as_it_was = screen.ended()
    plain.wait(timeout=60)
    text = open("plain.out").read()
    end = r" saved and unfinished at step \d+ \(exit code 75\)"
    ok(
        code == 0 and as_it_was and re.search(end, screen.text.split(LEAVE)[-1]),
        "it ends with the run, and leaves the last frame",
        screen.text[-3000:],
    )
    ok(
        plain.returncode == 0 and "\x1b" not in text and " running on " in text and re.search(end, text),
        "so it does without a terminal, in plain text",
        text[-3000:],
    )


def test_once(run):
    out = command("watch", run, "--once")
    with h5py.File(f"{run}/metrics.h5") as f:
        loss, bits, rate = (
            f["steps/loss"][19],
            f["validation/bits_per_base"][3],
            np.median(f["steps/tokens_per_s"][:20]),
        )
    want = [
        " finished at step 20 (exit code 0)",
        " step 20 of 20 ",
        f" loss {loss:.4f} nats/token",
        f" held-out {bits:.4f} bits/base at step 20",
        f" {rate:.0f} tokens/s ",
    ]
    missing = [text for text in want if text not in out.stdout]
    ok(
        out.returncode == 0 and not missing,
        f"{run}: --once shows the file's values",
        f"{missing}\n{out.stdout}{out.stderr}",
    )

    os.environ["COLUMNS"], os.environ["LINES"] = "20", "60"
    out = command("watch", run, "--once")
    narrow = " ".join(out.stdout.split())
    missing = [text for text in want if text.strip() not in narrow]
    long = [line for line in out.stdout.split("\n") if len(line) > 20]
    os.environ["COLUMNS"] = "250"
    wide = command("watch", run, "--once").stdout.split("\n")
    del os.environ["COLUMNS"], os.environ["LINES"]
    ok(not missing and not long, f"{run}: in 20 columns no value is cut", f"{missing} {long}\n{out.stdout}")
    ok(200 < max(map(len, wide)) <= 250, f"{run}: in 250 they are used", "\n".join(wide))


def test_curve():
    """The axis of losses of which some are large does not begin below 0."""
    y = np.array([5.0, 6.0, 3000.0, 8.0, 5.0, 4.0])
    lines = module("chart.py").curve(np.arange(6), y, (np.zeros(0), np.zeros(0)), 60, 9)
    labels = [float(line.split("│")[0]) for line in lines if line.split("│")[0].strip() and "│" in line]
    ok(len(labels) == 3 and labels[0] > 1000 and labels[-1] == 0, "a curve of losses begins at 0", lines)


def test_others():
    for run in ("empty", "begun"):
        out = command("watch", run, "--once")
        ok(out.returncode == 0 and " no step is done yet" in out.stdout, f"{run}: no step yet", out.stdout + out.stderr)
    out = command("watch", "skipped", "--once")
    ok(
        out.returncode == 0
        and "stopped on numbers that are not finite" in out.stdout
        and "skipped_step: loss" in out.stdout,
        "a run that was stopped on its numbers, with its last events",
        out.stdout + out.stderr,
    )
    out = regulon("watch", "ep", "--once", env=os.environ | {"PYTHONIOENCODING": "ascii"})
    ok(
        out.returncode == 0 and out.stdout.isascii() and " layer 1   " in out.stdout,
        "ASCII where the terminal has no more",
        out.stdout,
    )


def test_killed():
    job = start_job("killed")
    time.sleep(0.5)
    os.killpg(job.pid, signal.SIGKILL)
    drain(job)
    kill_jobs()
    time.sleep(0.2)
    (lock,) = [name for name in os.listdir("killed") if name.startswith("lock.")]
    os.utime(f"killed/{lock}", (time.time() - 100, time.time() - 100))
    out = command("watch", "killed", "--once")
    ok(
        out.returncode == 0 and re.search("no sign of its job for 1 min 4. s", out.stdout),
        "after kill -9: no sign of its job",
        out.stdout + out.stderr,
    )
    want = {name: rows for name, rows in expected("killed/metrics.h5")[0].items() if rows}
    found = {
        name: rows for name, rows in read_csv(command("convert-metrics", "killed", "--csv").stdout).items() if rows
    }
    ok(
        len(want["train/loss"]) >= 1 and not agree(found, want),
        f"and its {len(want['train/loss'])} rows are exported",
        agree(found, want)[:9],
    )


def test_replaced(name):
    """The file of another run takes the place of the one that was just opened: once, and again and again."""
    metrics = (modules.get(f"regulon-{name}") or module(f"regulon-{name}")).metrics
    opened, more = metrics.open_run, ["--once"] if name == "watch" else ["--csv"]
    os.makedirs("replaced", exist_ok=True)
    times = iter(())

    def replace(path):
        run = opened(path)
        for source in times:
            shutil.copy(f"{source}/metrics.h5", "replaced/new")
            os.replace("replaced/new", "replaced/metrics.h5")
            break
        return run

    def outcome(sources):
        nonlocal times
        shutil.copy("dp/metrics.h5", "replaced/metrics.h5")
        times = iter(sources)
        metrics.open_run = replace
        try:
            return command(name, "replaced", *more)
        finally:
            metrics.open_run = opened

    out, want = outcome(["one"]), command(name, "one", *more)
    have, want = (re.sub("finished.*|no job|one|replaced", "", x.stdout) for x in (out, want))
    ok(out.returncode == 0 and have == want, f"{name}: a file that is replaced is read anew", out.stderr + have)
    out = outcome(["one", "dp"] * 9)
    ok(
        out.returncode == 65
        and out.stderr == f"regulon-{name}: replaced/metrics.h5: the run went back to an earlier step while it was "
        "read; try again\n"
        and not out.stdout,
        f"{name}: one that always is: one line",
        out.stderr + out.stdout,
    )
    shutil.copy("dp/metrics.h5", "replaced/metrics.h5")
    with h5py.File("replaced/metrics.h5", "r+") as f:
        del f["steps/loss"]
    shutil.copy("one/metrics.h5", "replaced/new")
    later = threading.Timer(0.25, os.replace, ("replaced/new", "replaced/metrics.h5"))
    later.start()
    out = command(name, "replaced", *more)
    later.join()
    ok(out.returncode == 0, f"{name}: a file that lacks a dataset for a moment", out.stderr)


def test_transient(watch):
    for name in ("watch", "convert-metrics"):
        test_replaced(name)
    shutil.copytree("ep", "damaged")
    view = watch.View("damaged")
    good = view.lines((100, 40))
    os.rename("damaged/metrics.h5", "damaged/aside")
    open("damaged/metrics.h5", "w").write("a server in trouble")
    lines = view.lines((100, 40))
    kept = [line for line in good if line.startswith((" loss", " step"))]
    ok(
        re.match(r" as of \d\d:\d\d:\d\d, since it cannot be read now: damaged/metrics.h5: not an HDF5 file", lines[1])
        and set(kept) <= set(lines),
        "a file that cannot be read for a while: the last frame, and why",
        "\n".join(lines),
    )
    os.rename("damaged/aside", "damaged/metrics.h5")
    ok(view.lines((100, 40)) == good, "and on with the next one that can")
    bad = [
        size
        for size in ((1, 1), (2, 3), (20, 5), (40, 8), (80, 24), (300, 100))
        for lines in [view.lines(size)]
        if len(lines) > size[1] or any(len(line) > size[0] for line in lines)
    ]
    ok(not bad, "frames of any size", bad)


def wrong_values(metrics, found, run):
    """The writer's rows are functions of the step."""
    step = run.steps.step
    bad = [] if np.array_equal(step, np.arange(1, run.steps.n + 1)) else ["step"]
    bad += [] if np.array_equal(run.steps["loss"], step + 0.25) else ["loss"]
    for name, add in (("train/loss", 0.25), ("grad_norm", 1.25), ("lr", 1.5), ("mfu", 2.75)):
        bad += [name for s, v in found[name].items() if v != s + add]
    for name, value in (
        ("moe/expert_load/layer_1/expert_2", lambda s: 1000 * s + 6),
        ("timing/exchange/max", lambda s: s + 3 / 8 + 2 / 64),
        ("eval/loss", lambda s: 2 - s / 1024),
        ("moe/router_entropy/layer_1", lambda s: s + 1 / 8),
    ):
        bad += [name for s, v in found[name].items() if v != value(s)]
    if len(found["train/loss"]) < run.steps.n - 1:
        bad.append(f"{len(found['train/loss'])} rows of {run.steps.n}")
    return bad


def test_beside_writer(seconds, watch, convert):
    """Reads again and again while a writer adds rows, outgrows its file and replaces it, ends and begins anew."""
    metrics = watch.metrics
    reads = rows = writers = began_anew = 0
    bad, refused = [], []
    end = time.monotonic() + seconds
    view, writer = watch.View("beside.h5"), None
    while time.monotonic() < end and not bad:
        if writer is None or writer.poll() is not None:
            writer = subprocess.Popen(
                [WRITER, "write", "beside.h5", "1200", "300", "300", "1"], stdout=subprocess.DEVNULL
            )
            writers += 1
        try:
            run, out = metrics.open_run("beside.h5"), io.StringIO()
            convert.csv(convert.names.step_stretches(run), convert.names.step_names(run), convert.names.own_stretches(run), out)
            bad += wrong_values(metrics, read_csv(out.getvalue()), run)
            view.lines((100, 40))
            reads, rows = reads + 1, max(rows, run.steps.n)
        except metrics.Changed:  # another writer's file has taken the place of the one that was read
            began_anew += 1
        except metrics.Refused as reason:
            if reads or not isinstance(reason, metrics.Missing):
                refused.append(str(reason))
    writer.kill()
    writer.wait()
    print(f"# {reads} reads in {seconds} s beside {writers} writers, up to {rows} rows; {began_anew} ended by a run that "
          f"began anew; refused: {refused}", flush=True)
    ok(
        reads > 3 and rows > 100 and began_anew <= writers and not bad and not refused,
        "exports and frames beside a writer: no wrong value, no failure",
        bad[:9],
    )


def run_all(seconds):
    watch, convert = module("regulon-watch"), module("regulon-convert-metrics")
    for run in ("dp", "resumed"):
        test_once(run)
    test_curve()
    test_others()
    test_transient(watch)
    test_terminal()
    test_killed()
    test_beside_writer(seconds, watch, convert)
