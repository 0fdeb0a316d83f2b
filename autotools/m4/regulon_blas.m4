dnl --with-blas absent: OpenBLAS, BLIS or another CBLAS if found, else plain loops; =yes or =PKG (a pkg-config
dnl name) or =DIR (a prefix with OpenBLAS): fail if unusable; --without-blas: plain loops.
AC_DEFUN([REGULON_TRY_BLAS], [
  AS_IF([test $have_blas = no], [
    save_CPPFLAGS=$CPPFLAGS; save_LIBS=$LIBS
    CPPFLAGS="$2 $CPPFLAGS"; LIBS="$3 $LIBS"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <cblas.h>]], [[float x = 1, y = 0;
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, 1, 1, 1, 1, &x, 1, &x, 1, 0, &y, 1); return y != 1;]])],
      [have_blas=yes; blas_kind="$1"; BLAS_CFLAGS="$2"; BLAS_LIBS="$3"
       AC_CHECK_FUNCS([openblas_set_num_threads bli_thread_set_num_threads])])
    CPPFLAGS=$save_CPPFLAGS; LIBS=$save_LIBS])
])
AC_DEFUN([REGULON_WITH_BLAS], [
  AC_ARG_WITH([blas], [AS_HELP_STRING([--with-blas@<:@=NAME|DIR@:>@], [CBLAS for the CPU backend @<:@check@:>@])], [], [with_blas=check])
  have_blas=no blas_kind="none: plain loops (slow)" BLAS_CFLAGS= BLAS_LIBS=
  AS_CASE([$with_blas],
    [no], [],
    [/*], [AS_IF([test -f "$with_blas/include/cblas.h"],
      [REGULON_TRY_BLAS([$with_blas], [-I$with_blas/include], [-L$with_blas/lib -Wl,-rpath,$with_blas/lib -lopenblas])])],
    [yes|check], [
      for name in openblas blis cblas; do
        AS_IF([$PKG_CONFIG --exists $name 2>/dev/null], [
          blas_c=$($PKG_CONFIG --cflags $name); blas_l=$($PKG_CONFIG --libs $name)
          REGULON_TRY_BLAS([$name], [$blas_c], [$blas_l])])
      done
      REGULON_TRY_BLAS([openblas], [], [-lopenblas])
      REGULON_TRY_BLAS([openblas], [-I/usr/include/openblas], [-lopenblas])
      REGULON_TRY_BLAS([blis], [-I/usr/include/blis], [-lblis])],
    [AS_IF([$PKG_CONFIG --exists $with_blas 2>/dev/null], [
       blas_c=$($PKG_CONFIG --cflags $with_blas); blas_l=$($PKG_CONFIG --libs $with_blas)
       REGULON_TRY_BLAS([$with_blas], [$blas_c], [$blas_l])])])
  AS_IF([test $have_blas = no && test "x$with_blas" != xcheck && test "x$with_blas" != xno],
    [AC_MSG_FAILURE([--with-blas=$with_blas was given, but no usable CBLAS was found])])
  AS_IF([test $have_blas = yes], [AC_DEFINE([HAVE_CBLAS], [1], [Define to 1 to use CBLAS for matrix products.])
    BLAS_CONFIGURE_FLAGS="--with-blas=$with_blas"], [BLAS_CONFIGURE_FLAGS=--without-blas])
  AS_CASE([$BLAS_CONFIGURE_FLAGS], [*check], [BLAS_CONFIGURE_FLAGS=--with-blas])
  AC_DEFINE_UNQUOTED([BLAS_KIND], ["$blas_kind"], [The BLAS that configure found.])
  AC_SUBST([BLAS_CFLAGS])
  AC_SUBST([BLAS_LIBS])
  AC_SUBST([BLAS_CONFIGURE_FLAGS])
])
