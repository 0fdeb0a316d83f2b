# shellcheck shell=sh
# From a clone or an unpacked release to a program in build/: what quickstart.sh and test.sh share. Sourced by them; a
# second time around it installs, configures and compiles nothing.
#   top, mpiexec                the source's top folder, which is also made the current one; what starts ranks
#   packages KIND...            what is missing is installed, or listed (exit 78)
#   build [CONFIGURE OPTION...] build/ is configured and up to date

top=$(cd "$(dirname "$0")/.." && pwd -P)
cd "$top" && mkdir -p build || exit 78
. jobs/env.sh
mpi='' mpiexec='' cc=cc

# Open MPI (4; PRTE_: 5) wants to hear that root, more ranks than cores, and threads over all cores are meant, and that
# its banner is not wanted below the program's one line about a mistake.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
export OMPI_MCA_orte_execute_quiet=1
export OMPI_MCA_hwloc_base_binding_policy=none PRTE_MCA_hwloc_default_binding_policy=none

say() { echo "${0##*/}: $*"; }
stop() {
    say "$@" >&2
    exit 78
}

# What is needed: kind (to build, to bootstrap a clone, for speed, for tests; the first two are indispensable), how it is
# found, and its packages in Debian and Ubuntu, Spack, and conda-forge.
needed() {
    cat <<'END'
build command make       build-essential    gmake      make
build command cc         build-essential    gcc        c-compiler
build mpi     MPI        mpich,libmpich-dev mpich      mpich
build hdf5    HDF5       libhdf5-dev        hdf5+hl    hdf5
build command pkg-config pkg-config         pkgconf    pkg-config
build module  yaml-0.1   libyaml-dev        libyaml    yaml
build module  jansson    libjansson-dev     jansson    jansson
build module  zlib       zlib1g-dev         zlib       zlib
build module  libxxhash  libxxhash-dev      xxhash     xxhash
clone command git        git                git        git
clone command autoconf   autoconf           autoconf   autoconf
clone command automake   automake           automake   automake
speed blas    OpenBLAS   libopenblas-dev    openblas   openblas
test  python  h5py       python3-h5py       py-h5py    h5py
test  python  matplotlib python3-matplotlib py-matplotlib matplotlib
test  python  xarray     python3-xarray     py-xarray  xarray
test  python  netCDF4    python3-netcdf4    py-netcdf4 netcdf4
test  python  h5netcdf   python3-h5netcdf   py-h5netcdf h5netcdf
test  command ncdump     netcdf-bin         netcdf-c   libnetcdf
test  command strace     strace             strace     -
test  command bgzip      tabix              htslib     -
test  command shellcheck shellcheck         -          shellcheck
END
}

found() { # HOW NAME
    case $1 in
    command) command -v "$2" >/dev/null ;;
    module) pkg-config --exists "$2" 2>/dev/null ;;
    python) "$(test_python)" -c "import importlib.util as u; raise SystemExit(not u.find_spec('$2'))" 2>/dev/null ;;
    mpi) [ -n "$mpi" ] ;;
    hdf5) [ -n "${HDF5_LIBS:-}" ] || found module "hdf5-${mpi:-mpich}" || found module hdf5-serial || found_plain_hdf5 ;;
    blas) found module openblas || found module blis || found module cblas || found_header cblas.h ;;
    esac
}
found_header() { echo "#include <$1>" | "$cc" -E - >/dev/null 2>&1; }
found_plain_hdf5() { # hdf5.pc may be that of another MPI
    [ "$mpi" = openmpi ] && other=mpich || other=openmpi
    if found module hdf5; then ! pkg-config --libs hdf5 | grep -q "$other"; else found_header hdf5.h; fi
}
test_python() { # the one that configure takes
    for python in ${PYTHON3:-} python3 /usr/bin/python3; do
        "$python" -c 'import h5py' 2>/dev/null && break
    done
    echo "$python"
}

# try_mpi COMPILER LAUNCHER: do two processes become one job of two ranks?
try_mpi() {
    command -v "$1" >/dev/null && command -v "${2%% *}" >/dev/null || return 1
    cat >build/ranks.c <<'END'
#include <mpi.h>
#include <stdio.h>
#ifdef OPEN_MPI
static const char name[] = "openmpi";
#else
static const char name[] = "mpich";
#endif
int main(int argc, char **argv) {
    int rank, n_ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    if (rank == 0) printf("%d ranks of %s\n", n_ranks, name);
    return MPI_Finalize();
}
END
    "$1" -o build/ranks build/ranks.c 2>/dev/null || return 1
    # shellcheck disable=SC2086 # a launcher may come with options
    got=$(timeout 60 $2 -n 2 build/ranks </dev/null 2>&1)
    rm -f build/ranks build/ranks.c
    for name in mpich openmpi; do # among warnings, perhaps
        echo "$got" | grep -q "^2 ranks of $name" && cc=$1 mpiexec=$2 mpi=$name && return
    done
    say "$2 -n 2 does not start 2 ranks; seen: $(echo "${got:-nothing}" | tr '\n' ' ')"
    return 1
}
find_mpi() { # CC may name a compiler that knows no MPI
    { [ -n "${CC:-}" ] && try_mpi "$CC" "${MPIEXEC:-mpiexec}"; } || try_mpi mpicc "${MPIEXEC:-mpiexec}" ||
        try_mpi mpicc.openmpi mpiexec.openmpi
}

packages() { # KIND...
    if [ -e .git ] || [ ! -f configure ]; then set -- "$@" clone; fi
    find_mpi
    debian='' spack='' conda='' names='' indispensable=''
    while read -r kind how name deb sp co; do
        case " $* " in *" $kind "*) ;; *) continue ;; esac
        found "$how" "$name" && continue
        case $kind in build | clone) indispensable=1 ;; esac
        names="$names $name" debian="$debian $deb" spack="$spack $sp" conda="$conda $co"
    done <<END
$(needed)
END
    [ -n "$names" ] || return 0
    if command -v apt-get >/dev/null && [ -f /etc/debian_version ] && may_install; then
        # shellcheck disable=SC2046 # a list
        install_debian $(listed "$debian")
        [ -n "$mpi" ] || find_mpi || {
            say "takes Open MPI: no other MPI here starts 2 ranks (of Ubuntu 24.04's MPICH that is known)"
            install_debian libopenmpi-dev openmpi-bin libhdf5-dev
            find_mpi || stop "no MPI here starts 2 ranks; set CC and MPIEXEC to a compiler and a launcher that do"
        }
    elif [ -z "$indispensable" ]; then
        say "goes on without:$names"
    else
        say "missing:$names. One of these brings them; on a cluster, load its modules in jobs/env.sh.
  Debian, Ubuntu: apt-get install $(listed "$debian")
  Spack:          spack install $(listed "$spack")
  conda:          conda install -c conda-forge $(listed "$conda")" >&2
        exit 78
    fi
}
listed() { echo "$1" | sed 's/[ ,]/\n/g' | grep -v '^-*$' | sort -u | tr '\n' ' '; } # each once
may_install() { # as root, or through sudo; sudo asks for a password only where someone can type it
    as_root=''
    [ "$(id -u)" != 0 ] || return 0
    as_root='sudo -n'
    [ ! -t 0 ] || as_root=sudo
    $as_root true 2>/dev/null
}
install_debian() { # PACKAGE...
    say "installs $*"
    { $as_root apt-get -qq update && $as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq install --yes --no-install-recommends "$@"; } >build/packages.log 2>&1 || {
        tail -n 20 build/packages.log >&2
        stop "apt-get failed (build/packages.log)"
    }
}

# A build/ that is there is used as it is, unless the MPI is another one by now or other options are given.
# shellcheck disable=SC2120 # quickstart.sh gives no option
build() { # [CONFIGURE OPTION...]
    [ -f configure ] || ./bootstrap >build/bootstrap.log 2>&1 || {
        cat build/bootstrap.log >&2
        stop "./bootstrap failed"
    }
    with_mpi="$mpi $cc $mpiexec"
    if [ -f build/Makefile ] && [ "$(cat build/with-mpi 2>/dev/null || echo "$with_mpi")" = "$with_mpi" ] &&
        { [ $# -eq 0 ] || [ "$(cat build/with-options 2>/dev/null)" = "$*" ]; }; then
        say "build/ is configured"
    else
        [ ! -f build/Makefile ] || make -C build -s clean
        (cd build && ../configure CC="$cc" MPIEXEC="$mpiexec" "$@" >configure.log 2>&1) || {
            grep error: build/configure.log >&2
            stop "configure failed (build/configure.log, build/config.log)"
        }
        sed -n '/^  regulon/,/^$/p' build/configure.log
        echo "$with_mpi" >build/with-mpi
        echo "$*" >build/with-options
    fi
    mpiexec=$(sed -n 's/^MPIEXEC = //p' build/Makefile)
    make -C build -s -j"$(nproc)" all || stop "make failed"
}
