#!/bin/sh
# `regulon experts` on routing whose answer is known, and on that of a real model. The checks are in analysis_experts.py.
srcdir=${srcdir:-.}
for python in "$PYTHON3" /usr/bin/python3 python3; do
    [ -n "$python" ] && "$python" -c 'import h5py, matplotlib' 2>/dev/null && exec "$python" "$srcdir/tests/analysis_experts.py"
done
echo "1..0 # SKIP no Python with h5py and matplotlib"
