"""The terminal while something is drawn on it again and again: a screen of its own, keys, its size; then as it was.

with terminal.Screen() as screen:
    screen.draw(lines)
    key = screen.wait(seconds)                    # "q", "" when the size changed, None when the time is over
"""

import os
import select
import shutil
import signal
import sys
import termios
import time

ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"  # the other screen, without a cursor; and back
HOME, REST_OF_LINE, REST = "\x1b[H", "\x1b[K", "\x1b[J"


class Screen:
    def __init__(self):
        self._saved = None  # the terminal's settings, where keys come from one
        self._out = sys.stdout.fileno()
        self._handlers = {}
        self._wake, self._woken = os.pipe()
        for end in (self._wake, self._woken):
            os.set_blocking(end, False)

    def __enter__(self):
        for number, handler in (
            (signal.SIGWINCH, _nothing),
            (signal.SIGINT, self._end),
            (signal.SIGTERM, self._end),
            (signal.SIGHUP, self._end),
            (signal.SIGTSTP, self._stop),
        ):
            self._handlers[number] = signal.signal(number, handler)
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)  # a signal ends wait()
        self._take()
        return self

    def __exit__(self, *_):
        self._give_back()
        signal.set_wakeup_fd(-1)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        os.close(self._wake)
        os.close(self._woken)

    def size(self):
        """(columns, lines) to draw on; the last column is left free, for a cursor there would begin a line."""
        columns, lines = shutil.get_terminal_size()
        return max(1, columns - 1), lines

    def draw(self, lines):
        """Each line is cut to the width; what was there before goes."""
        width, height = self.size()
        lines = [line[:width] for line in lines[:height]]
        _write(HOME + "".join(line + REST_OF_LINE + "\n" for line in lines[:-1]) + lines[-1] + REST_OF_LINE + REST)

    def wait(self, seconds):
        end = time.monotonic() + seconds
        sources = [self._wake] + ([sys.stdin.fileno()] if self._saved else [])
        while True:
            ready, _, _ = select.select(sources, [], [], max(0, end - time.monotonic()))
            if not ready:
                return None
            if self._wake in ready:
                os.read(self._wake, 4096)
                return ""
            key = os.read(sys.stdin.fileno(), 1).decode("ascii", "replace")
            if key in "qQ":  # also "", the end of the input
                return "q"

    def _take(self):
        """No line editing and no echo, where keys come from a terminal that is ours; Ctrl-C stays a signal."""
        if sys.stdin.isatty() and _in_foreground(sys.stdin.fileno()):
            self._saved = termios.tcgetattr(sys.stdin.fileno())
            quiet = termios.tcgetattr(sys.stdin.fileno())
            quiet[3] &= ~(termios.ICANON | termios.ECHO)
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, quiet)
        _write(ENTER)

    def _give_back(self):
        os.write(self._out, LEAVE.encode())  # not through stdout, which a signal may have interrupted
        if self._saved:
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._saved)

    def _end(self, number, _):
        """At once, without an exception, which a call of HDF5 might swallow. Ctrl-C is the ordinary way to end."""
        try:
            self._give_back()
        finally:
            os._exit(0 if number == signal.SIGINT else 128 + number)

    def _stop(self, *_):
        """Ctrl-Z: stopped with the terminal as it was; goes on from here."""
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._take()


def _write(text):
    sys.stdout.write(text)
    sys.stdout.flush()


def _nothing(*_):
    pass


def _in_foreground(terminal):
    """Whether its keys are for us; so they are of one that rules no jobs."""
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return True
