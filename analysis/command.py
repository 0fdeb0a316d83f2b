"""What the analysis commands share: their words, their one line about a mistake, their exit codes (docs/formats.md).

    import command                                    # first: it says what to install where a module is absent
    import metrics
    if __name__ == "__main__":
        command.run("report", main)
"""
import argparse
import importlib
import os
import sys

USAGE, DATA, OUTPUT, CONFIGURATION = 64, 65, 74, 78
PACKAGES = {"h5py": "python3-h5py", "numpy": "python3-numpy", "matplotlib": "python3-matplotlib"}


class Refused(Exception):
    """Input that cannot be used: one clear line, exit code 65."""


def program():
    return os.path.basename(sys.argv[0])


def need(*modules):
    """Ends the program with one line if one of the modules is not there."""
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError as absent:
            print(f"{program()}: {absent}: apt-get install {PACKAGES[module]}, or module load the cluster's Python "
                  f"with {module}, or pip install {module}", file=sys.stderr)
            sys.exit(CONFIGURATION)


class Words(argparse.ArgumentParser):
    """argparse with our exit code and one line for a wrong command line; the name is `regulon NAME`."""

    def __init__(self, name, **words):
        super().__init__(prog=f"regulon {name}", formatter_class=argparse.RawDescriptionHelpFormatter, **words)

    def error(self, message):
        print(f"{program()}: {message}; {self.prog} --help", file=sys.stderr)
        sys.exit(USAGE)


def run(name, main):
    """Calls main() and ends the program with the code it returns (None: 0), or with that of what went wrong."""
    def fail(text, code):
        print(f"regulon-{name}: {text}", file=sys.stderr)
        return code

    try:
        code = main() or 0
        sys.stdout.flush()
    except Refused as reason:
        code = fail(reason, DATA)
    except BrokenPipeError:  # as `| head` makes it
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = 0
    except OSError as error:
        code = fail(f"{error.filename}: {error.strerror}" if error.filename else error, OUTPUT)
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)
