dnl --with-cudnn absent: use it if found; =yes or =DIR: fail if absent or too old; --without-cudnn: do not look. DIR may
dnl be the nvidia/cudnn folder of a Python installation, whose library has no name for the linker.
AC_DEFUN([REGULON_WITH_CUDNN], [
  AC_ARG_WITH([cudnn], [AS_HELP_STRING([--with-cudnn@<:@=DIR@:>@], [attention through cuDNN, 9.10 or later @<:@check@:>@])], [], [with_cudnn=check])
  have_cudnn=no
  AS_IF([test "x$with_cudnn" != xno && test $have_cuda = yes], [
    CUDNN_CPPFLAGS= CUDNN_LIBS=-lcudnn cudnn_h=/
    AS_CASE([$with_cudnn], [yes|check], [], [
      CUDNN_CPPFLAGS="-isystem $with_cudnn/include" cudnn_h=$with_cudnn/include/cudnn.h cudnn_lib=$with_cudnn/lib
      AS_IF([test -e "$with_cudnn/lib64/libcudnn.so"], [cudnn_lib=$with_cudnn/lib64])
      AS_IF([test ! -e "$cudnn_lib/libcudnn.so" && test -e "$cudnn_lib/libcudnn.so.9"], [CUDNN_LIBS=-l:libcudnn.so.9])
      CUDNN_LIBS="-L$cudnn_lib -Wl,-rpath,$cudnn_lib $CUDNN_LIBS"])
    save_CPPFLAGS=$CPPFLAGS; save_LIBS=$LIBS
    CPPFLAGS="$CPPFLAGS $CUDNN_CPPFLAGS $CUDA_CPPFLAGS"; LIBS="$CUDNN_LIBS $CUDA_LIBS $LIBS"
    AC_MSG_CHECKING([for cuDNN 9.10 or later])
    AS_IF([test -e "$cudnn_h"], [AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <cudnn.h>
      #if CUDNN_VERSION < 91000
      #error older
      #endif]], [[return cudnnBackendExecute(0, 0, 0) == CUDNN_STATUS_SUCCESS;]])], [have_cudnn=yes])])
    AC_MSG_RESULT([$have_cudnn])
    CPPFLAGS=$save_CPPFLAGS; LIBS=$save_LIBS])
  AS_IF([test $have_cudnn = no && test "x$with_cudnn" != xcheck && test "x$with_cudnn" != xno],
    [AC_MSG_FAILURE([--with-cudnn was given, but cuDNN 9.10 or later (with CUDA) was not found])])
  AS_IF([test $have_cudnn = yes], [AC_DEFINE([HAVE_CUDNN], [1], [Define to 1 to use cuDNN for attention.])], [CUDNN_CPPFLAGS= CUDNN_LIBS=])
  AC_SUBST([CUDNN_CPPFLAGS])
  AC_SUBST([CUDNN_LIBS])
  AM_CONDITIONAL([HAVE_CUDNN], [test $have_cudnn = yes])
])
