#!/bin/sh
# analysis/peers/compare.py with stand-ins for regulon, nvidia-smi and the peers, and the peers' scripts with a stand-in for torch.
srcdir=${srcdir:-.}
for python in "$PYTHON3" /usr/bin/python3 python3; do
    [ -n "$python" ] && "$python" -c 'import h5py, matplotlib' 2>/dev/null && exec "$python" "$srcdir/tests/analysis_peers.py" "$srcdir"
done
echo "1..0 # SKIP no Python with h5py and matplotlib"
