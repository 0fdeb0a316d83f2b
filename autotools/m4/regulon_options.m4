dnl REGULON_STRICT_OPTIONS: a mistyped --with-X or --enable-X is an error, not a warning.
AC_DEFUN([REGULON_STRICT_OPTIONS], [
  AS_IF([test "x$ac_unrecognized_opts" != x && test "x$enable_option_checking" = x],
    [AC_MSG_ERROR([unknown option: $ac_unrecognized_opts (see ./configure --help)])])
])
dnl REGULON_CPU_FLAGS: the CPU backend's loops want the build machine's vector units. --with-arch names
dnl another -march for a cluster whose login node differs from its compute nodes; --without-arch: the compiler's default.
AC_DEFUN([REGULON_CPU_FLAGS], [
  AC_ARG_WITH([arch], [AS_HELP_STRING([--with-arch=NAME], [-march of the CPU backend @<:@native@:>@])], [], [with_arch=native])
  AS_CASE([$with_arch], [yes], [with_arch=native])
  CPU_CFLAGS=
  AS_IF([test "x$with_arch" != xno], [
    save_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS -march=$with_arch"
    AC_MSG_CHECKING([whether $CC takes -march=$with_arch])
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([], [])], [AC_MSG_RESULT([yes])
       CPU_CFLAGS="-march=$with_arch"], [AC_MSG_RESULT([no])
       AS_IF([test "x$with_arch" != xnative], [AC_MSG_FAILURE([--with-arch=$with_arch: the compiler refuses it])])])
    CFLAGS=$save_CFLAGS])
  dnl no -ffast-math: sums keep their order, so that the same grid gives the same bits with any compiler flags
  CPU_CFLAGS="$CPU_CFLAGS -ffp-contract=fast -fno-math-errno -fno-trapping-math"
  AC_SUBST([CPU_CFLAGS])
])
