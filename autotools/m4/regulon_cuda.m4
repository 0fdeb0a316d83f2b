dnl --with-cuda absent: use it if found; =yes or =DIR: fail if absent; --without-cuda: do not look.
AC_DEFUN([REGULON_WITH_CUDA], [
  AC_ARG_VAR([NVCC], [CUDA compiler])
  AC_ARG_VAR([NVCCFLAGS], [CUDA compiler flags])
  AC_ARG_VAR([NVCC_GENCODE], [GPU targets, nvcc -gencode options])
  AC_ARG_WITH([cuda], [AS_HELP_STRING([--with-cuda@<:@=DIR@:>@], [CUDA backend @<:@check@:>@])], [], [with_cuda=check])
  have_cuda=no have_nvtx=no
  AS_IF([test "x$with_cuda" != xno], [
    AS_CASE([$with_cuda], [yes|check], [cuda_path=$PATH:/usr/local/cuda/bin], [cuda_path=$with_cuda/bin])
    AC_PATH_PROG([NVCC], [nvcc], [], [$cuda_path])
    AS_IF([test -n "$NVCC"], [
      cuda_root=$(dirname "$(dirname "$NVCC")")
      CUDA_CPPFLAGS="-isystem $cuda_root/include"
      CUDA_LIBS="-L$cuda_root/lib64 -Wl,-rpath,$cuda_root/lib64 -lcublasLt -lcudart -lstdc++ -ldl"
      save_CPPFLAGS=$CPPFLAGS; save_LIBS=$LIBS
      CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS"; LIBS="$CUDA_LIBS $LIBS"
      AC_CHECK_HEADER([cublasLt.h], [
        AC_CHECK_FUNC([cublasLtCreate], [AC_CHECK_FUNC([cudaStreamCreate], [have_cuda=yes])])])
      CPPFLAGS=$save_CPPFLAGS; LIBS=$save_LIBS])
    AS_IF([test $have_cuda = no && test "x$with_cuda" != xcheck],
      [AC_MSG_FAILURE([--with-cuda was given, but no usable CUDA toolkit was found])])])
  AS_IF([test $have_cuda = yes], [
    AC_DEFINE([HAVE_CUDA], [1], [Define to 1 to build the CUDA backend.])
    save_CPPFLAGS=$CPPFLAGS; CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS"
    AC_CHECK_HEADER([nvtx3/nvToolsExt.h], [have_nvtx=yes; AC_DEFINE([HAVE_NVTX], [1], [Define to 1 to mark phases for profilers.])])
    CPPFLAGS=$save_CPPFLAGS
    : ${NVCC_GENCODE="-gencode=arch=compute_90a,code=sm_90a"}
    : ${NVCCFLAGS="-O3 -lineinfo"}], [CUDA_CPPFLAGS= CUDA_LIBS= NVCC=])
  AC_SUBST([CUDA_CPPFLAGS])
  AC_SUBST([CUDA_LIBS])
  AS_IF([test $have_cuda = yes], [CUDA_CONFIGURE_FLAGS=--with-cuda=$cuda_root], [CUDA_CONFIGURE_FLAGS=--without-cuda])
  AC_SUBST([CUDA_CONFIGURE_FLAGS])
  AM_CONDITIONAL([HAVE_CUDA], [test $have_cuda = yes])
  AM_CONDITIONAL([HAVE_NVTX], [test $have_nvtx = yes])
])
AC_DEFUN([REGULON_WITH_NCCL], [
  AC_ARG_WITH([nccl], [AS_HELP_STRING([--with-nccl@<:@=DIR@:>@], [NCCL collectives @<:@check@:>@])], [], [with_nccl=check])
  have_nccl=no
  AS_IF([test "x$with_nccl" != xno && test $have_cuda = yes], [
    AS_CASE([$with_nccl], [yes|check], [NCCL_CPPFLAGS= NCCL_LIBS=-lnccl],
      [NCCL_CPPFLAGS="-isystem $with_nccl/include" NCCL_LIBS="-L$with_nccl/lib -lnccl"])
    save_CPPFLAGS=$CPPFLAGS; save_LIBS=$LIBS
    CPPFLAGS="$CPPFLAGS $NCCL_CPPFLAGS $CUDA_CPPFLAGS"; LIBS="$NCCL_LIBS $CUDA_LIBS $LIBS"
    AS_CASE([$with_nccl], [yes|check], [nccl_h=/], [nccl_h=$with_nccl/include/nccl.h])
    AS_IF([test -e "$nccl_h"], [AC_CHECK_HEADER([nccl.h], [AC_CHECK_FUNC([ncclCommInitRank], [have_nccl=yes])])])
    CPPFLAGS=$save_CPPFLAGS; LIBS=$save_LIBS])
  AS_IF([test $have_nccl = no && test "x$with_nccl" != xcheck && test "x$with_nccl" != xno],
    [AC_MSG_FAILURE([--with-nccl was given, but NCCL (with CUDA) was not found])])
  AS_IF([test $have_nccl = yes], [AC_DEFINE([HAVE_NCCL], [1], [Define to 1 if NCCL is used.])], [NCCL_CPPFLAGS= NCCL_LIBS=])
  AC_SUBST([NCCL_CPPFLAGS])
  AC_SUBST([NCCL_LIBS])
  AM_CONDITIONAL([HAVE_NCCL], [test $have_nccl = yes])
])
