#!/bin/sh
# Includes point downwards only: each layer may include itself and those after it.
order="main plan bench score generate train checkpoint metrics optim model data backend grid config base"
srcdir=${srcdir:-.}
echo 1..1
bad=$(cd "$srcdir/src" && find . -name '*.[ch]' | while read -r f; do
    from=${f#./}
    from=${from%%/*}
    case $from in main.c | eval.[ch] | export.[ch] | generate.[ch] | import.[ch] | info.[ch] | selftest.[ch] | selftest_path.c | tools.[ch]) from=main ;; esac # the verbs
    case " $order " in *" $from "*) ;; *) echo "# $f is in no layer" ;; esac
    sed -n 's|^#include "\([a-z]*\)/.*|\1|p' "$f" | while read -r to; do
        [ "$from" = "$to" ] && continue
        case " ${order#*"$from"} " in
        *" $to "*) ;;
        *) echo "# $f includes $to/" ;;
        esac
    done
done)
bad=$bad$(grep -l '^#include "[a-z]*/' "$srcdir"/kernels/*.cu "$srcdir"/kernels/*.cuh "$srcdir"/kernels/*.h | sed 's/.*/# & includes src/')
if [ -z "$bad" ]; then
    echo "ok 1 - includes point downwards"
else
    echo "$bad"
    echo "not ok 1 - includes point downwards"
fi
