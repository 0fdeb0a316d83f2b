#!/bin/sh
# `regulon pack` on real genomes: exit codes, reports, several ranks, other readers of its file.
srcdir=${srcdir:-.}
# shellcheck disable=SC2086 # a launcher may come with options
MPIEXEC=${MPIEXEC:-mpiexec}
PYTHON3=${PYTHON3:-python3}
regulon=$PWD/regulon
genomes=$(cd "$srcdir/input/genomes" && pwd)
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
n=0
ok() { # ok STATUS TEXT
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; fi
}
# refuses CODE PATTERN WORD...: exit code, one line on stderr, no output file, no temporary left
refuses() {
    code=$1 pattern=$2
    shift 2
    "$regulon" pack "$@" >out 2>err
    got=$?
    [ "$got" -eq "$code" ] && grep -q -- "$pattern" err && [ "$(wc -l <err)" -eq 1 ] && [ ! -e no.h5 ] && [ -z "$(ls ./*.tmp 2>/dev/null)" ]
    status=$?
    [ $status -eq 0 ] || sed 's/^/# /' err
    ok $status "refused ($code): $pattern"
}
tokens() { "$PYTHON3" -c 'import h5py, sys; sys.stdout.buffer.write(h5py.File(sys.argv[1], "r")["tokens"][:].tobytes())' "$1"; }

"$regulon" pack "$genomes/lambda_virus.fa.gz" "$genomes/ecoli_536.fna.gz" -o one.h5 --json >one.json
ok $? "two genomes"
$MPIEXEC -n 2 "$regulon" pack "$genomes/lambda_virus.fa.gz" "$genomes/ecoli_536.fna.gz" -o two.h5 >two.txt
ok $? "the same on two ranks"
grep -q '2 records, 4987422 tokens, alphabet dna' two.txt
ok $? "the report"
! ls ./*.tmp >/dev/null 2>&1
ok $? "no temporary file is left"
"$PYTHON3" -c 'import h5py' 2>/dev/null
have_h5py=$?
if [ $have_h5py -eq 0 ]; then
    tokens one.h5 >one.raw
    tokens two.h5 >two.raw
    for f in lambda_virus.fa ecoli_536.fna; do gzip -dc "$genomes/$f.gz" | grep -v '>' | tr -d '\n'; done >want.raw
    cmp one.raw want.raw
    ok $? "the tokens are the bases"
    cmp one.raw two.raw
    ok $? "and the same on two ranks, byte for byte"
    "$PYTHON3" - one.h5 one.json <<'EOF'
import h5py, json, sys
f, report = h5py.File(sys.argv[1], "r"), json.load(open(sys.argv[2]))
r = f["records"]
assert f.attrs["format"] == "regulon corpus" and f.attrs["format_version"] == 1, dict(f.attrs)
assert f.attrs["alphabet"] == "dna" and f.attrs["tool_version"].startswith("regulon ")
assert f["tokens"].chunks is None and f["tokens"].dtype == "uint8"
assert list(r["offset"]) == [0, 48502] and list(r["length"]) == [48502, 4938920] and list(r["source"]) == [0, 1]
assert [x.decode().split("|")[1] for x in r["name"]] == ["9626243", "110640213"], list(r["name"])
assert len(f.attrs["sources"]) == 2 and f.attrs["sources_bytes"][1] == 1476523
assert all(len(x) == 32 for x in f.attrs["sources_xxh128"])
for d in (f["tokens"], r["name"], r["offset"], r["length"], r["source"]):
    assert d.attrs["units"] == "1" and d.attrs["long_name"], d
for key in "version revision configure_line compiler hdf5 mpi".split():
    assert f["code"].attrs[key] or key == "configure_line", key
assert f["run"].attrs["start"].endswith("Z") and f["run"].attrs["host"]
assert report["records"] == 2 and report["tokens"] == 4987422 and report["files"] == 2, report
assert report["empty_records"] == report["duplicate_names"] == report["dropped_spaces"] == 0, report
EOF
    ok $? "h5py reads all of it as documented"
fi

printf '>a\nACGT\n>b\nGG\n>a\nC C\n>c\n>d\nTTTTT\n' >small.fa
"$regulon" pack small.fa -o s.h5 >s.txt
grep -q 'duplicate names *1' s.txt && grep -q 'empty records *1' s.txt && grep -q 'dropped spaces *1' s.txt
ok $? "what was met is reported"
if [ $have_h5py -eq 0 ]; then
    "$regulon" pack small.fa -o s1.h5 --shuffle 7 >out && $MPIEXEC -n 2 "$regulon" pack small.fa --shuffle=7 -o s2.h5 >out
    "$PYTHON3" - <<'EOF'
import h5py
def records(f):
    f = h5py.File(f, "r"); r, t = f["records"], f["tokens"][:].tobytes()
    return [(x, t[o:o + l]) for x, o, l in zip(r["name"], r["offset"], r["length"])]
plain, one, two = (records(f) for f in ("s.h5", "s1.h5", "s2.h5"))
assert plain == [(b"a", b"ACGT"), (b"b", b"GG"), (b"a", b"CC"), (b"c", b""), (b"d", b"TTTTT")], plain
assert one == two and one != plain and sorted(one) == sorted(plain), one
EOF
    ok $? "--shuffle keeps every record whole, alike on one rank and two"
fi
printf '{"seq":"ACGT"}\n' | gzip >j.gz
"$regulon" pack --jsonl j.gz --field seq -o j.h5 >out && grep -q '1 records, 4 tokens' out
ok $? "JSON lines, gzip"
printf '\005\000\006\000\377\377\007\000' >t.bin
"$regulon" pack --tokens u16 t.bin --eos 65535 -o t.h5 >out && grep -q '2 records, 3 tokens, alphabet bytes' out
ok $? "ready tokens"
"$regulon" pack --help | grep -q -- --shuffle
ok $? "help"

printf '>a\nACGT\nAC>b\n' >bad.fa
printf '>p\nMKVLLEEQFP\n' >p.fa
head -c 700000 "$genomes/ecoli_536.fna.gz" >cut.fa.gz
: >empty.fa
printf '>a\n>b\n' >none.fa
printf '\103\047\101\032aaaa' >x.2bit
refuses 65 "^regulon: bad.fa:3:3: '>' in the middle" bad.fa -o no.h5
refuses 65 'cut.fa.gz:[0-9]*:[0-9]*: the gzip stream breaks off at the file.s end, byte 700000' cut.fa.gz -o no.h5
refuses 65 'p.fa: 70 % of its letters.*dataset.alphabet' p.fa -o no.h5
refuses 65 'empty.fa: no records' empty.fa -o no.h5
refuses 65 'none.fa: no tokens' none.fa -o no.h5
refuses 65 'x.2bit: a 2bit file; twoBitToFa' x.2bit -o no.h5
refuses 65 'one.h5: an HDF5 file' one.h5 -o no.h5
refuses 65 'nothing.fa: cannot be opened' nothing.fa -o no.h5
refuses 74 'no/folder/x.h5: cannot be written' small.fa -o no/folder/x.h5
refuses 64 'no file given' -o no.h5
refuses 64 '-o FILE is missing' small.fa
refuses 64 "no option '--alphabt'" small.fa --alphabt dna -o no.h5
refuses 64 "'xna' is none of" small.fa --alphabet xna -o no.h5
refuses 64 'needs --eos' t.bin --tokens u16 -o no.h5
refuses 64 'does not fit' t.bin --tokens u16 --eos 65536 -o no.h5
refuses 64 'is a folder' small.fa -o .
refuses 64 'one of the files to read' small.fa -o small.fa
$MPIEXEC -n 2 "$regulon" pack small.fa p.fa bad.fa -o no.h5 >out 2>err
[ $? -eq 65 ] && [ "$(grep -c 'bad.fa:3:3' err)" -eq 1 ] && [ ! -e no.h5 ] && ! ls ./*.tmp >/dev/null 2>&1
ok $? "a bad file on any rank: code 65, said once, nothing left"
echo "1..$n"
