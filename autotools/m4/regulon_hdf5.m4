dnl REGULON_WITH_HDF5: HDF5 1.10 or later, serial or parallel (one writer per file); --with-hdf5=DIR names a prefix.
AC_DEFUN([REGULON_WITH_HDF5], [
  AC_ARG_WITH([hdf5], [AS_HELP_STRING([--with-hdf5=DIR], [prefix of an HDF5 installation @<:@pkg-config@:>@])], [], [with_hdf5=yes])
  AS_CASE([$with_hdf5],
    [no], [AC_MSG_ERROR([HDF5 is required])],
    [yes], [PKG_CHECK_MODULES([HDF5], [hdf5-mpi], [],
              [PKG_CHECK_MODULES([HDF5], [hdf5], [], [PKG_CHECK_MODULES([HDF5], [hdf5-serial], [],
                [PKG_CHECK_MODULES([HDF5], [hdf5-openmpi])])])])],
    [HDF5_CFLAGS="-I$with_hdf5/include" HDF5_LIBS="-L$with_hdf5/lib -Wl,-rpath,$with_hdf5/lib -lhdf5"
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
