#!/bin/sh
# bundle.sh FOLDER MPIEXEC: adds to an installed tree what its program needs from this machine and another may lack: the
# libraries it loads into FOLDER/lib, and MPICH's launcher. Not the C library, which a machine has, as old as this one's or
# newer, nor the GPU driver's. CUDA's, cuDNN's and NCCL's are large: with BUNDLE_CUDA=yes only.
set -eu
folder=$1 launcher=$2
mkdir -p "$folder/lib"

from_system() {
    case $1 in
    libc.so.* | libm.so.* | libdl.so.* | librt.so.* | libpthread.so.* | libutil.so.* | libresolv.so.* | libnss_* | libanl.so.* | ld-linux*) ;;
    libcuda.so.* | libnvidia-*) ;;
    libcublas* | libcudart* | libcudnn* | libnccl* | libnvrtc* | libnvJitLink*) [ "${BUNDLE_CUDA:-no}" != yes ] ;;
    *) return 1 ;;
    esac
}
take() { # NAME PATH
    from_system "$1" || [ -e "$folder/lib/$1" ] || cp -L "$2" "$folder/lib/$1"
}
take_all() { # what these load, and what that loads in turn
    ldd "$@" >"$folder/needed"
    if grep 'not found' "$folder/needed" >&2; then exit 1; fi
    awk '$2 == "=>" { print $1, $3 }' "$folder/needed" | sort -u >"$folder/found"
    while read -r name path; do take "$name" "$path"; done <"$folder/found"
    rm "$folder/needed" "$folder/found"
}
take_all "$folder/bin/regulon"

# cuDNN opens its parts by name, and the compiler that some of its plans need
if [ "${BUNDLE_CUDA:-no}" = yes ]; then
    ldd "$folder/bin/regulon" | awk '/^[[:space:]]*libcud(nn|art)\./ { print $3 }' >"$folder/opened"
    while read -r path; do
        beside=$(dirname "$(readlink -f "$path")")
        for part in "$beside"/libcudnn_*.so.9 "$beside"/libnvrtc*.so.1[0-9]*; do
            [ ! -e "$part" ] || take "$(basename "$part")" "$part"
        done
    done <"$folder/opened"
    rm "$folder/opened"
fi

# Hydra finds its proxy beside itself; both find their libraries, and pass the variable on to what they start
hydra=$(readlink -f "$(command -v "${launcher%% *}")")
proxy=$(dirname "$hydra")/hydra_pmi_proxy
if [ -x "$proxy" ]; then
    mkdir -p "$folder/libexec/hydra"
    cp "$hydra" "$folder/libexec/hydra/mpiexec"
    cp "$proxy" "$folder/libexec/hydra/"
    take_all "$hydra" "$proxy"
    cat >"$folder/bin/mpiexec" <<'EOS'
#!/bin/sh
top=$(dirname "$(dirname "$(readlink -f "$0")")")
LD_LIBRARY_PATH=$top/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
exec "$top/libexec/hydra/mpiexec" "$@"
EOS
    chmod 755 "$folder/bin/mpiexec"
else
    echo "bundle: $hydra is not MPICH's: without mpiexec, for one process or the launcher of the machine it goes to"
fi
