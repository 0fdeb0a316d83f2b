dnl Debian has one HDF5 for each MPI and a serial one. That of another MPI would bring two MPIs into one program,
dnl and hdf5.pc may be it. Where no .pc file comes with HDF5 (EPEL), the compiler finds it or the check below says no.
AC_DEFUN([REGULON_FIND_HDF5], [
  AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>
#ifndef OPEN_MPI
#error another
#endif]])], [mpi_here=openmpi mpi_other=mpich], [mpi_here=mpich mpi_other=openmpi])
  AC_MSG_CHECKING([for HDF5's pkg-config name])
  hdf5_name=none
  for name in hdf5-$mpi_here hdf5-serial hdf5; do
    AS_IF([hdf5_libs=$($PKG_CONFIG --libs $name 2>/dev/null)],
      [AS_CASE([$hdf5_libs], [*$mpi_other*], [], [hdf5_name=$name; break])])
  done
  AC_MSG_RESULT([$hdf5_name])
  AC_ARG_VAR([HDF5_CFLAGS], [C compiler flags for HDF5, overriding pkg-config])
  AC_ARG_VAR([HDF5_LIBS], [linker flags for HDF5, overriding pkg-config])
  AS_IF([test $hdf5_name = none], [: ${HDF5_LIBS=-lhdf5}],
    [: ${HDF5_CFLAGS=$($PKG_CONFIG --cflags $hdf5_name)}; : ${HDF5_LIBS=$hdf5_libs}])
])
dnl REGULON_WITH_HDF5: HDF5 1.10 or later, serial or parallel (one writer per file); --with-hdf5=DIR names a prefix.
AC_DEFUN([REGULON_WITH_HDF5], [
  AC_ARG_WITH([hdf5], [AS_HELP_STRING([--with-hdf5=DIR], [prefix of an HDF5 installation @<:@pkg-config@:>@])], [], [with_hdf5=yes])
  AS_CASE([$with_hdf5],
    [no], [AC_MSG_ERROR([HDF5 is required])],
    [yes], [REGULON_FIND_HDF5],
    [AS_IF([test -f "$with_hdf5/include/hdf5.h"], [], [AC_MSG_ERROR([--with-hdf5=$with_hdf5: no $with_hdf5/include/hdf5.h])])
     HDF5_CFLAGS="-I$with_hdf5/include" HDF5_LIBS="-L$with_hdf5/lib -Wl,-rpath,$with_hdf5/lib -lhdf5"
     AC_SUBST([HDF5_CFLAGS])
     AC_SUBST([HDF5_LIBS])])
  save_CPPFLAGS=$CPPFLAGS; save_LIBS=$LIBS
  CPPFLAGS="$HDF5_CFLAGS $CPPFLAGS"; LIBS="$HDF5_LIBS $LIBS"
  AC_MSG_CHECKING([that HDF5 is 1.10 or later and links])
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <hdf5.h>
#if !H5_VERSION_GE(1,10,0)
#error too old
#endif]], [[return H5open();]])],
    [AC_MSG_RESULT([yes])], [AC_MSG_RESULT([no])
     AC_MSG_FAILURE([HDF5 1.10 or later is not usable with these flags])])
  AC_COMPUTE_INT([hdf5_major], [H5_VERS_MAJOR], [#include <hdf5.h>], [hdf5_major=1])
  AC_COMPUTE_INT([hdf5_minor], [H5_VERS_MINOR], [#include <hdf5.h>], [hdf5_minor=10])
  AC_COMPUTE_INT([hdf5_release], [H5_VERS_RELEASE], [#include <hdf5.h>], [hdf5_release=0])
  hdf5_version=$hdf5_major.$hdf5_minor.$hdf5_release
  AC_CHECK_FUNCS([H5Pset_file_locking])
  AC_CHECK_LIB([hdf5_hl], [H5DSattach_scale], [HDF5_LIBS=`AS_ECHO(["$HDF5_LIBS"]) | $SED 's/-lhdf5/-lhdf5_hl &/'`],
    [AC_MSG_FAILURE([HDF5's high-level library (libhdf5_hl, dimension scales) is missing])])
  CPPFLAGS=$save_CPPFLAGS; LIBS=$save_LIBS
])
