#!/bin/sh
# `regulon generate` from end to end: what is written, the same on other grids and again, settings, prompts, and what a
# user can get wrong. (generate.c has kept keys and values, greedy letters and frequencies, against golden logits.)
# shellcheck disable=SC2086 # $MPIEXEC may be several words
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$work" || exit 99
export CUDA_VISIBLE_DEVICES='' # backend auto is cpu here
unset SLURM_JOB_GPUS SLURM_GPUS_ON_NODE
# refused CODE MESSAGE WORD...: on two ranks the code, the message once, and nothing on stdout
refused() {
    code=$1 message=$2
    shift 2
    $MPIEXEC -n 2 "$regulon" generate "$@" >out 2>err
    got=$?
    [ $got = "$code" ] && [ "$(grep '^regulon: ' err)" = "regulon: $message" ] && ! grep -q -i abort err && [ ! -s out ]
    status=$?
    ok $status "exit $code: $message"
    [ $status = 0 ] || { echo "# exit $got" && sed 's/^/# /' out err; }
}
letters() { grep -v '^>' "$1" | tr -d '\n'; } # all of a file
same() { # TEXT FILE FILE: both with something in them
    [ -s "$2" ] && cmp "$2" "$3"
    ok $? "$1"
}
loss() { sed -n 's|^held-out loss *\([0-9.]*\) .*|\1|p' "$1"; }

regulon 2 train L0_sanity num_train_steps=40 train.verdict=false checkpoint.save_final_model=true checkpoint.save_every_n_steps=20 \
    checkpoint.ckpt_dir=run >train.out
ok $? 'a model'

# what is written
regulon 1 generate run -n 5 --length 301 --seed 3 >a.fa
ok $? 'five sequences, longer than two contexts'
[ "$(grep -c '^>' a.fa)" = 5 ] && [ "$(sed -n 6p a.fa)" = '>sequence_2 number=2 letters=plain temperature=1 seed=3' ] &&
    [ "$(grep -v '^>' a.fa | awk '{ print length }' | uniq -c | tr -s ' ' | tr '\n' ,)" = ' 3 80, 1 61, 3 80, 1 61, 3 80, 1 61, 3 80, 1 61, 3 80, 1 61,' ]
ok $? 'as FASTA: 301 letters in lines of 80, settings in the names'
[ -z "$(letters a.fa | tr -d ACGT)" ] && [ "$(letters a.fa | fold -w 1 | sort -u | wc -l)" = 4 ]
ok $? 'A C G T, all of them and nothing else'
regulon 1 generate run -n 5 --length 301 --seed 3 -o b.fa >out && [ ! -s out ]
ok $? '-o'
same 'the same again' a.fa b.fa
regulon 1 generate run -n 5 --length 301 --seed 4 >b.fa
cut=$(letters b.fa) && [ ${#cut} = 1505 ] && [ "$cut" != "$(letters a.fa)" ] && [ "$(grep -v '^>' a.fa | sort | uniq -d)" = '' ]
ok $? 'another seed: other letters; each sequence is another one'
regulon 1 generate run -n 2 --length 301 --seed 3 >b.fa && head -n 10 a.fa | cmp - b.fa
ok $? '-n 5 begins as -n 2'

# grids
regulon 2 generate run -n 5 --length 301 --seed 3 >b.fa
same 'experts over two ranks: the same' a.fa b.fa
regulon 2 generate run -n 5 --length 301 --seed 3 parallelism.ep_size=1 >b.fa
same 'two ranks with all experts: the same' a.fa b.fa
regulon 4 generate run -n 2 --length 40 --seed 3 >b.fa && regulon 1 generate run -n 2 --length 40 --seed 3 >c.fa
same 'four ranks, two of them without a sequence: the same' b.fa c.fa
regulon 1 generate run/step_000000020 -n 5 --length 301 --seed 3 >b.fa && [ "$(letters b.fa | wc -c)" = 1505 ] && ! cmp -s a.fa b.fa
ok $? 'a step folder is another model'

# settings
regulon 1 generate run --length 200 --prompt ACGTTGCA --greedy >greedy.fa && letters greedy.fa >greedy
for words in '--top-k 1' '--top-p 1e-9' '--temperature 1e-6'; do
    regulon 1 generate run --length 200 --prompt ACGTTGCA $words >b.fa && letters b.fa >b
    same "$words is greedy" greedy b
done
regulon 1 generate run --length 200 --prompt ACGTTGCA >b.fa && letters b.fa >b && ! cmp -s greedy b
ok $? 'temperature 1 is not'
for t in 0.1 1 10; do # a cold model's letters surprise it less than a hot one's
    regulon 1 generate run -n 60 --length 120 --temperature $t -o $t.fa >out && regulon 1 eval run validation.data_path=$t.fa >$t
done
awk -v a="$(loss 0.1)" -v b="$(loss 1)" -v c="$(loss 10)" 'BEGIN { exit !(a > 0 && a + 0.03 < b && b + 0.002 < c) }'
ok $? "the model's loss on what it made grows with the temperature: $(loss 0.1), $(loss 1), $(loss 10)"
regulon 1 generate run -n 4 --length 500 --letters all --temperature 1000 -o b.fa && "$regulon" pack b.fa --alphabet bytes -o b.h5 >out &&
    [ "$(letters b.fa | wc -c)" = 2000 ] && [ "$(letters b.fa | fold -w 1 | sort -u | wc -l)" = 55 ] && [ -z "$(letters b.fa | tr -d 'a-zA-Z*.-')" ]
ok $? '--letters all: both cases and * - ., which pack reads'
regulon 1 generate run --length 500 --temperature 1000 dataset.alphabet=rna >b.fa && [ "$(letters b.fa | fold -w 1 | sort -u | tr -d '\n')" = ACGU ]
ok $? "another alphabet's letters"
regulon 1 generate run --length 20000 --temperature 1e6 dataset.alphabet=bytes -o b.fa && "$regulon" pack b.fa --alphabet bytes -o b.h5 >out 2>&1 &&
    "$regulon" info b.h5 | grep -q '^tokens  *20000 of 1 byte, largest 255$'
ok $? 'bytes: all that FASTA can hold'

# prompts
printf '>first about it\nACGTacgtNNAC\nGT\n>second\n>third\nTTTT\n' >p.fa
regulon 1 generate run --prompts p.fa -n 2 --length 30 --with-prompt >b.fa
ok $? 'prompts from FASTA, one of them empty'
[ "$(grep '^>' b.fa | cut -d ' ' -f 1 | tr '\n' ' ')" = '>first_1 >first_2 >second_1 >second_2 >third_1 >third_2 ' ] &&
    [ "$(sed -n 1p b.fa)" = '>first_1 prompt=first prompt_letters=14 number=1 letters=plain temperature=1 seed=0' ] &&
    [ "$(sed -n 2p b.fa | cut -c 1-14)" = ACGTacgtNNACGT ] && [ "$(letters b.fa | wc -c)" = 216 ]
ok $? 'two sequences each, named, behind their prompts'
gzip -k p.fa && regulon 2 generate run --prompts p.fa.gz -n 2 --length 30 --with-prompt >c.fa
same 'gzipped, on two ranks: the same' b.fa c.fa
regulon 1 generate run --prompt TTTT --length 30 -n 200 >b.fa && regulon 1 generate run --prompt TTTT --no-bos --length 30 -n 200 >c.fa &&
    [ "$(letters b.fa)" != "$(letters c.fa)" ]
ok $? '--no-bos'
bases=$(awk 'BEGIN { for (i = 0; i < 126; i++) printf "%s", substr("ACGT", i * i % 7 % 4 + 1, 1) }')
regulon 1 generate run --prompt "$bases" --length 30 >b.fa && [ "$(letters b.fa | wc -c)" = 30 ]
ok $? 'a prompt as long as they may be'
regulon 1 generate run --help >said && grep -q -e '--top-p' said
ok $? '--help'

# mistakes
refused 64 'generate: which model? regulon generate RUN [option ...] [key=value ...]'
refused 64 "generate: unknown option '--greddy'; did you mean --greedy?" run --greddy
refused 64 'generate: -n takes a whole number, 1 to 2147483647' run -n
refused 64 "generate: -n takes a whole number, 1 to 2147483647, not '0'" run -n 0
refused 64 "generate: --length takes a whole number, 1 to 2147483647, not '1e3'" run --length 1e3
refused 64 "generate: --temperature takes a number above 0, not '0'" run --temperature 0
refused 64 "generate: --top-k takes a whole number, 1 or more, not '0'" run --top-k 0
refused 64 "generate: --top-p takes a number above 0, up to 1, not '1.5'" run --top-p 1.5
refused 64 "generate: --seed takes a whole number, 0 or more, not '-1'" run --seed -1
refused 64 "generate: --letters takes plain or all, not 'some'" run --letters some
refused 64 "generate: --prompt takes letters, not ''" run --prompt ''
refused 64 'generate: --seed is given twice' run --seed 1 --seed 1
refused 64 'generate: --prompt or --prompts, not both' run --prompt A --prompts p.fa
refused 64 'generate: --greedy always takes the likeliest letter: --seed changes nothing' run --greedy --seed 1
refused 64 'generate: --no-bos needs a prompt: a sequence begins with one or with BOS' run --no-bos
refused 64 "generate: --prompt: 'J' at 3 is no letter of dna" run --prompt ACJ
refused 64 "generate: --prompt: 127 letters; the model's context has room for 126 before the first new one (dataset.max_seq_length 128): give the last of them" \
    run --prompt "${bases}A"
refused 64 'generate: no prompt: a sequence begins with a prompt where the model was trained without BOS (dataset.bos_eos)' run dataset.bos_eos=none
refused 64 "'now' is not of the form key=value" run now
refused 65 './nowhere: neither a run folder (it has no used.yaml) nor a step folder of one, nor a Hugging Face folder' ./nowhere
printf '>long\n%s\nA\n' "$bases" >long.fa
refused 65 "long.fa: record 'long': 127 letters; the model's context has room for 126 before the first new one (dataset.max_seq_length 128): give the last of them" \
    run --prompts long.fa
printf '>a\nACG\n>b\nACE\n' >letters.fa
refused 65 "letters.fa: record 'b': 'E' at 3 is no letter of dna" run --prompts letters.fa
refused 65 "p.fa: record 'second': a sequence begins with a prompt where --no-bos is given" run --prompts p.fa --no-bos
: >empty.fa
refused 65 'empty.fa: no record to go on from' run --prompts empty.fa
printf 'ACGT\n' >headless.fa
refused 65 "headless.fa:1:1: 'A' before the first '>'" run --prompts headless.fa
refused 78 'model.num_local_experts (4) is not a multiple of parallelism.ep_size (3)' run parallelism.ep_size=3
refused 78 'modle.hidden_size: unknown key; did you mean model.hidden_size? (command line)' run modle.hidden_size=1
refused 74 './none: No such file or directory' run -o ./none/b.fa
mkfifo pipe
refused 64 'pipe: not a plain file' run -o pipe
refused 78 'generate: a vocabulary of 32 tokens has no letter of the alphabet in it' run model.vocab_size=32 dataset.alphabet=bytes
"$regulon" generate run --length 10 >/dev/full 2>err
[ $? = 74 ] && grep -q '^regulon: cannot write to stdout: No space left on device$' err
ok $? 'a full disk: exit 74'
rm -r run/step_* && "$PYTHON3" - run/final_model/model.safetensors <<'END'
import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(-4, 2)
    f.write(b"\377\377\377\377")
END
refused 76 'run/final_model: its logits are not finite' run
echo "1..$n"
