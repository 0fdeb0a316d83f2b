#!/bin/sh
# A run of four ranks goes on on four, two and one, with the same batches and so the same losses; the whole tensors of a
# checkpoint are seen through index.h5, each expert once; a number of ranks that cannot share the batch is refused.
# shellcheck disable=SC2086 # $train is several words, $MPIEXEC may be
srcdir=$(cd "${srcdir:-.}" && pwd)
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$work" || exit 99
if ! "$PYTHON3" -c 'import h5py' 2>/dev/null; then
    echo '1..0 # SKIP no Python with h5py'
    exit 0
fi

train="train L0_sanity train.verdict=false dataset.token_micro_batch_size=128 checkpoint.save_every_n_steps=4"
regulon 4 $train checkpoint.ckpt_dir=on4 parallelism.ep_size=2 num_train_steps=4 >out
ok $? 'four steps on 2 x 2'
for to in on2 on1 flat full2 full4; do cp -r on4 $to; done
regulon 4 $train checkpoint.ckpt_dir=on4 parallelism.ep_size=2 num_train_steps=12 >out
ok $? 'on on 2 x 2'
regulon 2 $train checkpoint.ckpt_dir=on2 parallelism.ep_size=1 num_train_steps=12 >out && grep -q 'grad_acc_steps becomes 2' err
ok $? 'on on 2 x 1'
regulon 1 $train checkpoint.ckpt_dir=on1 parallelism.ep_size=1 num_train_steps=12 parallelism.shard=none >out && grep -q 'grad_acc_steps becomes 4' err
ok $? 'on on 1 x 1, shard none'
regulon 4 $train checkpoint.ckpt_dir=flat parallelism.ep_size=4 num_train_steps=12 >out
ok $? 'on on 1 x 4'
regulon 2 $train checkpoint.ckpt_dir=full2 parallelism.ep_size=1 num_train_steps=8 parallelism.shard=full >out && grep -q 'shard full$' err
ok $? 'on on 2 x 1, shard full'
regulon 4 $train checkpoint.ckpt_dir=full2 parallelism.ep_size=2 num_train_steps=12 >out
ok $? 'and from there on 2 x 2, shard optimizer'
regulon 4 $train checkpoint.ckpt_dir=full4 parallelism.ep_size=2 num_train_steps=12 parallelism.shard=full checkpoint.save_final_model=true >out
ok $? 'on on 2 x 2, shard full'
"$PYTHON3" - on4 on2 on1 flat full2 full4 <<'EOF_PYTHON'
import sys, h5py
curves = [h5py.File(run + "/metrics.h5")["steps/loss"][:] for run in sys.argv[1:]]
steps = [list(h5py.File(run + "/metrics.h5")["steps/step"][:]) for run in sys.argv[1:]]
assert all(s == list(range(1, 13)) for s in steps), steps
worst = max(abs(a - b) / a for other in curves[1:] for a, b in zip(curves[0], other))
print(f"# losses differ by {worst:.1e} relative")
assert (curves[0][4:] != curves[2][4:]).any(), "the same bits: is it another grid?"
assert worst < 1e-6
EOF_PYTHON
ok $? 'the losses of steps 5 to 12 agree to 1e-6 on all grids, and no step is there twice'
"$PYTHON3" - on4 <<'EOF_PYTHON'
import sys, h5py, numpy
with h5py.File(sys.argv[1] + "/metrics.h5") as f, h5py.File(sys.argv[1] + "/step_000000012/index.h5") as index:
    top = int(f["config"].attrs["model.num_experts_per_tok"])
    active = 0
    for name, t in index["master"].items():
        if "norm" not in name and "embed" not in name:
            active += t.size * top // t.shape[0] if ".experts." in name else t.size
    steps = f["steps"]
    tokens = numpy.diff(steps["tokens"][:], prepend=0)
    flops = steps["tflops"][:] * steps["mfu_6n"][:] / steps["mfu"][:] * 1e12 * steps["step_s"][:] * 4
    assert numpy.allclose(flops, 6.0 * active * tokens, rtol=1e-9), (flops, active, tokens)
EOF_PYTHON
ok $? 'mfu_6n is of 6 FLOPs per active parameter and token'
"$PYTHON3" - on4/step_000000012 flat/step_000000012 <<'EOF_PYTHON'
import sys, h5py, numpy
for folder in sys.argv[1:]:
    with h5py.File(folder + "/index.h5") as index:
        assert sorted(index["master"]) == sorted(index["exp_avg"]) == sorted(index["exp_avg_sq"])
        for kind in "master", "exp_avg", "exp_avg_sq":
            for name, tensor in index[kind].items():
                assert not numpy.isnan(tensor[...]).any(), name
                if ".experts." in name:
                    assert len({e.tobytes() for e in tensor[...]}) == tensor.shape[0] == 4, name
EOF_PYTHON
ok $? 'index.h5 shows every tensor whole, and all experts, which differ'
# weights that are kept in shares: the model saved whole is the checkpoint's; a new run begins with it; eval keeps it whole
regulon 2 export full4/step_000000012 -o exported >out && diff -r exported full4/final_model
ok $? 'shard full: the final model is that of the checkpoint'
regulon 4 train full4/used.yaml checkpoint.ckpt_dir=tuned checkpoint.init_from=full4 parallelism.ep_size=2 num_train_steps=1 optimizer.lr=0 checkpoint.save_final_model=true >out &&
    cmp tuned/final_model/model.safetensors full4/final_model/model.safetensors
ok $? 'shard full: begun with the weights of a run'
held_out=validation.data_path=$srcdir/input/genomes/lambda_virus.fa.gz
regulon 2 eval full4 --json "$held_out" >out && regulon 2 eval full4 --json "$held_out" parallelism.shard=none >out2 && cmp out out2
ok $? 'shard full: evaluated'
regulon 4 train L0_sanity checkpoint.ckpt_dir=verdict parallelism.ep_size=2 parallelism.shard=full >out && grep -q '^# verdict: this machine trains as it should$' out
ok $? 'shard full: the verdict'
regulon 3 $train checkpoint.ckpt_dir=on4 parallelism.ep_size=1 num_train_steps=14 >out
[ $? = 78 ] && grep -q '^regulon: the run has 4 micro-batches a step, which 3 ranks cannot share; 2 or 4 can' err
ok $? 'three ranks cannot share four micro-batches: refused, with those that can'
echo "1..$n"
