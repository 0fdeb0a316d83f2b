"""What the analysis commands share: their words, their one line about a mistake, their exit codes (docs/formats.md).

    import command                                    # first: Ctrl-C ends the program quietly from here on
    import metrics                                    # second: it says what to install where a module is absent
    if __name__ == "__main__":
        command.run(main)
"""
import argparse
import contextlib
import importlib
import os
import shutil
import signal
import subprocess
import sys

USAGE, DATA, OUTPUT, CONFIGURATION = 64, 65, 74, 78
PACKAGES = {"h5py": "python3-h5py", "numpy": "python3-numpy", "matplotlib": "python3-matplotlib"}
CONFIGURED = "/usr/bin/python3"
unfinished = set()  # files to be removed when a signal ends the program


def _end(number, _):
    """As other programs: ended by the signal. No exception, which a call of HDF5 that is going on might swallow."""
    for path in unfinished:
        with contextlib.suppress(OSError):
            os.remove(path)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _begin():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup makes it
            signal.signal(number, _end)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends the program
    for name in ("stdout", "stderr"):  # closed by `>&-`
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))


_begin()


class Refused(Exception):
    """Input that cannot be used: one clear line, exit code 65."""


def program():
    return os.path.basename(sys.argv[0])


def need(*modules):
    """Goes on with another Python, or ends the program with one line, where some of the modules are not there."""
    absent = {}
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError as error:
            absent[module] = error
    if absent:
        tried = " and ".join([sys.executable, *_other_python(modules)])
        packages, names = " ".join(PACKAGES[module] for module in absent), " ".join(absent)
        print(f"{program()}: {tried}: {next(iter(absent.values()))}: apt-get install {packages}, or module load the "
              f"cluster's Python with {names}, or {sys.executable} -m pip install {names}", file=sys.stderr)
        sys.exit(CONFIGURATION)


def _other_python(modules):
    """Starts the program anew with the configured Python, if that has the modules; else returns [its path], if any."""
    other = shutil.which(CONFIGURED)
    if not other or other == sys.executable or not os.path.isfile(sys.argv[0]):
        return []
    if subprocess.run([other, "-c", f"import h5py, {', '.join(modules)}"], capture_output=True).returncode == 0:
        os.execv(other, [other, *sys.argv])
    return [other]


class Words(argparse.ArgumentParser):
    """argparse with our exit code and one line for a wrong command line; the name is `regulon NAME`."""

    def __init__(self, name, **words):
        super().__init__(prog=f"regulon {name}", formatter_class=argparse.RawDescriptionHelpFormatter, **words)

    def error(self, message):
        print(f"{program()}: {message}; {self.prog} --help", file=sys.stderr)
        sys.exit(USAGE)


@contextlib.contextmanager
def whole_file(path, mode="w", **words):
    """A file that appears at `path` when it is whole; nothing is left of it where that does not come about."""
    target = os.path.realpath(path)  # a link stays one
    temporary = target + ".tmp"
    try:
        with open(temporary, mode, **words) as out:
            unfinished.add(temporary)
            yield out
        os.replace(temporary, target)
    except BaseException as error:
        if temporary in unfinished:
            with contextlib.suppress(OSError):
                os.remove(temporary)
        if isinstance(error, OSError) and error.filename == temporary:
            error.filename = path
        raise
    finally:
        unfinished.discard(temporary)


def run(main):
    """Calls main() and ends the program with the code it returns (None: 0), or with that of what went wrong."""
    def fail(text, code):
        print(f"{program()}: {text}", file=sys.stderr)
        return code

    try:
        code = main() or 0
        sys.stdout.flush()
    except Refused as reason:
        code = fail(reason, DATA)
    except OSError as error:
        code = fail(f"{error.filename}: {error.strerror}" if error.filename else error, OUTPUT)
        try:
            sys.stdout.flush()
        except OSError:  # what it still holds is not tried again at the end
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(code)
