#!/bin/sh
# Exported models in transformers, FP32: the same logits. Skipped where no python3 of PATH has torch and transformers; with a virtual
# environment: PATH=VENV/bin:$PATH make check TESTS=tests/hf_logits.sh
srcdir=${srcdir:-.}
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/lib.sh"
python3 -c 'import torch, transformers' 2>/dev/null || { echo '1..0 # SKIP no python3 with torch and transformers' && exit 0; }
srcdir=$(cd "$srcdir" && pwd)
cd "$work" || exit 99
export PYTHONDONTWRITEBYTECODE=1 TRANSFORMERS_OFFLINE=1 HF_HUB_OFFLINE=1
for model in tiny finegrained_tied packed windowed_top1 all_experts_tied; do
    "$regulon" export "$srcdir/tests/golden/$model" -o $model 2>err &&
        python3 "$srcdir/tests/hf_logits.py" golden $model "$srcdir/tests/golden/$model/reference.safetensors" >out 2>err
    ok $? "$model, exported: the reference's logits within 1e-5 in transformers, $(tail -n 1 out)"
done
regulon 2 train L0_sanity checkpoint.ckpt_dir=run checkpoint.save_every_n_steps=10 >train.out && "$regulon" export run -o run.hf 2>err &&
    gzip -dc "$srcdir/input/genomes/lambda_virus.fa.gz" | head -n 40 >a.fa && regulon 1 score run a.fa --window 128 --per-base --format jsonl >a.jsonl &&
    python3 "$srcdir/tests/hf_logits.py" score run.hf a.fa a.jsonl >out 2>err
ok $? "a run, exported: the log-likelihoods of regulon score within 1e-5, $(tail -n 1 out)"
"$regulon" export run -o half --dtype bf16 2>err && python3 "$srcdir/tests/hf_logits.py" tokens half a.fa >out 2>err
ok $? "its tokeniser in transformers: $(tail -n 1 out)"
python3 "$srcdir/tests/hf_logits.py" dense dense && "$regulon" import dense -o up --experts 4 model.num_experts_per_tok=2 2>err && "$regulon" export up -o up.hf 2>err &&
    python3 "$srcdir/tests/hf_logits.py" alike dense up.hf >out 2>err
ok $? "a dense Mistral model of transformers, made a mixture without noise: the same logits within 1e-5, $(tail -n 1 out)"
echo "1..$n"
