# shellcheck shell=sh
# What a cluster needs before its compiler, MPI and HDF5 are found; sourced by every script in this folder, both to
# build and to run. For example:
#     module load gcc openmpi hdf5 openblas
