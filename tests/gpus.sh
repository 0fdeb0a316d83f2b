#!/bin/sh
# What `make check-gpu` runs on two GPUs of a host, or with two ranks that share one (one_gpu.c; then fewer steps, as ranks wait
# long for each other): data and expert parallel runs against one rank, tokens over peer memory and through NCCL, and a rank that
# is lost. In a build folder.
# shellcheck disable=SC2086 # $shares and others are several words
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/gpu_lib.sh
. "$(dirname "$0")/gpu_lib.sh"
some=50 more=60 most=70 few=30 long=100
if [ "$(nvidia-smi -L | grep -c '^GPU')" -lt 2 ]; then
    some=10 more=14 most=18 few=10 long=20
    export LD_PRELOAD="$build/tests/one_gpu.so" NCCL_SOCKET_IFNAME=lo
    echo '# two ranks share a GPU'
fi

regulon 2 train "$srcdir/input/L0_sanity.yaml" backend=cuda checkpoint.ckpt_dir=two >out && grep -q 'exchange peer memory' err
ok $? 'expert parallel over peer memory, as the deck is'
shares="backend=cuda model.num_experts_per_tok=4"
run whole $some $shares grad_acc_steps=2
for shard in none optimizer full; do
    run_on 2 "$shard" $some $shares parallelism.dp_size=2 parallelism.ep_size=1 parallelism.shard=$shard checkpoint.save_every_n_steps=$some &&
        close_losses whole.$some.out "$shard.$some.out" 0.002
    ok $? "data parallel, shard $shard: losses of one GPU with the same batches within 0.2 %"
done
run_on 2 again2 $some $shares parallelism.dp_size=2 parallelism.ep_size=1 && same_model optimizer again2
ok $? 'twice: the same model to the bit'
for way in peer nccl; do
    run_on 2 beside$way $some $shares parallelism.dp_size=2 parallelism.ep_size=1 engine.reduce=beside engine.collectives=$way && grep -q 'collectives' err && same_model optimizer beside$way
    ok $? "gradients beside the last backward pass, weights beside AdamW, by $way: the same model to the bit"
    TEST_COLLECTIVES=$way TEST_FP32=1 program reduce.np2 "the same of small models, by $way"
done
run_on 2 again3 $some $shares parallelism.dp_size=2 parallelism.ep_size=1 parallelism.shard=full engine.collectives=peer && grep -q 'collectives peer memory' err && same_model full again3
ok $? 'twice, shard full over peer memory: the same model to the bit'
run_on 2 fullnccl $some $shares parallelism.dp_size=2 parallelism.ep_size=1 parallelism.shard=full engine.collectives=nccl && grep -q 'collectives NCCL' err && same_model full fullnccl
ok $? 'and through NCCL, where two numbers have one sum'
run_on 2 fullep $some $shares parallelism.ep_size=2 parallelism.shard=full && grep -q 'exchange peer memory, collectives peer memory' err &&
    run_on 2 fullep2 $some $shares parallelism.ep_size=2 parallelism.shard=full engine.collectives=nccl engine.exchange=nccl && same_model fullep fullep2 && close_losses whole.$some.out fullep.$some.out 0.005
ok $? 'shard full, expert parallel, both over peer memory: the model of both through NCCL to the bit'
run optimizer $more $shares && run none $more $shares && same_model optimizer none &&
    numbers optimizer.$more.out >optimizer.$more && numbers none.$more.out >none.$more && [ -s none.$more ] && cmp -s optimizer.$more none.$more
ok $? 'checkpoints of both continue on one GPU, the same to the bit'
run full $more $shares && close_losses optimizer.$more.out full.$more.out 0.002 &&
    run_on 2 full $most $shares parallelism.dp_size=2 parallelism.ep_size=1 && run_on 2 none $most $shares parallelism.dp_size=2 parallelism.ep_size=1 parallelism.shard=full &&
    close_losses full.$most.out none.$most.out 0.002
ok $? 'from shard full to one GPU and to shard optimizer, and from one GPU to shard full'
TEST_COLLECTIVES=peer program beside.np2 'collectives beside other work, over peer memory'
TEST_COLLECTIVES=nccl program beside.np2 'the same through NCCL'
TEST_FP32=1 program stage.np1 'shard full, one GPU' && TEST_COLLECTIVES=peer TEST_FP32=1 program stage.np2 'shard full'
TEST_COLLECTIVES=nccl TEST_FP32=1 program stage.np2 'shard full through NCCL'
TEST_FP32=1 program golden.np2 'golden cases, FP32, data and expert parallel'
TEST_EXCHANGE=nccl TEST_FP32=1 program golden.np2 'the same through NCCL'
program recompute.np2 'recomputation'
TEST_EXCHANGE=nccl program recompute.np2 'recomputation, through NCCL'
TEST_EXPERTS=cublaslt program recompute.np2 'recomputation, a product an expert'
TEST_EXPERTS=unfused program recompute.np2 'recomputation, grouped products that are not fused'
for way in peer nccl; do
    TEST_EXCHANGE=$way program low_rows.np2 "rows in eight bits, $way"
    TEST_EXCHANGE=$way TEST_FP32=1 program low_rows.np2 'the same in FP32'
done
run_on 2 spread $some $shares parallelism.ep_size=2 && close_losses whole.$some.out spread.$some.out 0.005 &&
    grep -q 'graph: backward pass of 1024 tokens: its [0-9]* operations' err
ok $? 'expert parallel, recorded: losses of one GPU with the same batches within 0.5 %'
run_on 2 spread2 $some $shares parallelism.ep_size=2 && same_model spread spread2
ok $? 'expert parallel twice: the same model to the bit'
run_on 2 nccl $some $shares parallelism.ep_size=2 engine.exchange=nccl && same_model spread nccl
ok $? 'expert parallel through NCCL: the same model to the bit'
run_on 2 spreadbeside $some $shares parallelism.ep_size=2 engine.reduce=beside && same_model spread spreadbeside
ok $? 'with gradients beside the last backward pass, too'
rows="$shares precision.fp8_dispatch=true"
run low $some $rows grad_acc_steps=2 && run_on 2 spreadlow $some $rows parallelism.ep_size=2 && close_losses low.$some.out spreadlow.$some.out 0.005 && close_losses whole.$some.out low.$some.out 0.01 &&
    ! same_model spread spreadlow
ok $? 'tokens in eight bits on their way: losses of one GPU with the same batches within 0.5 %, of whole tokens within 1 %'
run_on 2 spreadlow2 $some $rows parallelism.ep_size=2 && same_model spreadlow spreadlow2 && run_on 2 nccllow $some $rows parallelism.ep_size=2 engine.exchange=nccl && same_model spreadlow nccllow
ok $? 'twice, and through NCCL: the same model to the bit'
if hopper; then
    program overflow.np2 'router.capacity'
    TEST_EXCHANGE=nccl program overflow.np2 'router.capacity, through NCCL'
    # one expert a token, and nothing that asks for balance: most tokens soon go to one rank, in all layers
    crowd="backend=cuda deterministic=true parallelism.ep_size=2 model.num_experts_per_tok=1 model.router_aux_loss_coef=0 grad_acc_steps=2"
    run_on 2 roomy 20 $crowd router.capacity=9 && ! grep -q 'step: done again' err && "$regulon" info roomy >roomy.said &&
        run_on 2 crowded 20 $crowd router.capacity=1 && grep -q 'step: done again: .* router.capacity 1 ' err && same_model roomy crowded &&
        numbers roomy.20.out >a && numbers crowded.20.out >b && [ -s a ] && cmp -s a b
    ok $? 'router.capacity too small: steps are done again, with the same lines and the same model to the bit'
    "$regulon" info crowded >said && grep -q 'overflow: router.capacity 1 was too small, it took [12]' said && ! grep -q overflow roomy.said
    ok $? 'and are events'
fi
if hopper; then
    eight="backend=cuda precision.recipe=fp8_block $all_experts"
    run whole8 $few $eight grad_acc_steps=2
    run_on 2 spread8 $few $eight parallelism.ep_size=2 && said_eight 'layers 0 to 1 of 0 to 1' && close_losses whole8.$few.out spread8.$few.out 0.005
    ok $? 'fp8_block, expert parallel: losses of one GPU with the same batches within 0.5 %'
    # of the first step; the grid does not matter, nor where in a stash rows lie
    for folder in whole spread; do
        said_of=$folder"1"
        if [ $folder = whole ]; then run $said_of 1 $eight grad_acc_steps=2; else run_on 2 $said_of 1 $eight parallelism.ep_size=2; fi
        "$build/regulon" info $said_of/metrics.h5 | sed -n 's/^eight bits .* error up to \([0-9.]*\) (\(.*\)), underflow up to \([0-9.e-]*\) (.*/\1 \2 \3/p'
    done >said8
    awk 'NR == 1 { e = $1; k = $2; u = $NF } END { d = $1 / e - 1; v = $NF - u; exit !(NR == 2 && $2 == k && d * d < 0.01 ^ 2 && v * v < (0.02 * u + 1e-4) ^ 2) }' said8
    status=$?
    ok $status 'statistics of the first step, expert parallel: those of one GPU'
    [ $status = 0 ] || sed 's/^/# /' said8
    run_on 2 again8 $few $eight parallelism.ep_size=2 && same_model spread8 again8 &&
        run_on 2 nccl8 $few $eight parallelism.ep_size=2 engine.exchange=nccl && same_model spread8 nccl8
    ok $? 'twice, and through NCCL: the same model to the bit'
    run kept8 $few $eight precision.fp8_activations=true grad_acc_steps=2
    run_on 2 spreadkept8 $few $eight precision.fp8_activations=true parallelism.ep_size=2 && close_losses kept8.$few.out spreadkept8.$few.out 0.005 &&
        ! same_model spread8 spreadkept8 && run_on 2 ncclkept8 $few $eight precision.fp8_activations=true parallelism.ep_size=2 engine.exchange=nccl && same_model spreadkept8 ncclkept8
    ok $? 'with activations in eight bits: losses of one GPU within 0.5 %, through NCCL the same model to the bit'
    # rounded again, rows have the same codes and scales: only gradients of weights see the difference
    run_on 2 spreadlow8 $few $eight precision.fp8_dispatch=true parallelism.ep_size=2 && close_losses spread8.$few.out spreadlow8.$few.out 0.02 && ! same_model spread8 spreadlow8 &&
        [ "$(numbers spread8.$few.out | awk '{ print $3; exit }')" = "$(numbers spreadlow8.$few.out | awk '{ print $3; exit }')" ]
    ok $? 'fp8_block with tokens in eight bits on their way: the first loss is the same, the others within 2 %'
    run_on 2 nccllow8 $few $eight precision.fp8_dispatch=true parallelism.ep_size=2 engine.exchange=nccl && same_model spreadlow8 nccllow8
    ok $? 'through NCCL: the same model to the bit'
    for shard in optimizer full; do
        run_on 2 ${shard}8 $few $eight parallelism.dp_size=2 parallelism.ep_size=1 parallelism.shard=$shard && close_losses whole8.$few.out ${shard}8.$few.out 0.005
        ok $? "fp8_block, data parallel, shard $shard: losses of one GPU within 0.5 %"
    done
    close_losses optimizer8.$few.out full8.$few.out 0.005 && run_on 2 full8again $few $eight parallelism.dp_size=2 parallelism.ep_size=1 parallelism.shard=full &&
        same_model full8 full8again
    ok $? 'of both kinds of shards, too; shard full twice: the same model to the bit'
    run_on 2 beside8 $few $eight parallelism.dp_size=2 parallelism.ep_size=1 engine.reduce=beside && same_model optimizer8 beside8
    ok $? 'gradients beside the last backward pass: the same model to the bit as with optimizer'
    # without weights of experts in BF16
    alone="$eight precision.fp8_weights=true"
    same_run() { same_model "$1" "$2" && numbers "$1.$few.out" >a && numbers "$2.$few.out" >b && [ -s a ] && cmp -s a b; }
    run_on 2 spread8alone $few $alone parallelism.ep_size=2 && grep -q 'fp8_weights: 4 tensors of experts are not kept in BF16$' err && same_run spread8 spread8alone
    ok $? 'precision.fp8_weights, expert parallel: the same lines, the same model to the bit'
    for shard in optimizer full; do
        run_on 2 ${shard}8alone $few $alone parallelism.dp_size=2 parallelism.ep_size=1 parallelism.shard=$shard && grep -q 'fp8_weights: 4 tensors of experts are not kept in BF16$' err &&
            same_run ${shard}8 ${shard}8alone
        ok $? "data parallel, shard $shard: the same"
    done
    regulon 2 train "$srcdir/input/L0_sanity.yaml" parallelism.dp_size=2 parallelism.ep_size=1 $alone checkpoint.ckpt_dir=verdict8 >out && grep -q '^# verdict: this machine trains as it should$' out
    ok $? 'and the verdict'
    # more layers than there are rooms, of which some stay out
    deep="backend=cuda precision.recipe=fp8_block $all_experts model.num_hidden_layers=5 precision.first_layers_bf16=1 precision.last_layers_bf16=1 parallelism.dp_size=2 parallelism.ep_size=1"
    run_on 2 deep8 10 $deep && run_on 2 deep8full 10 $deep parallelism.shard=full && said_eight 'layers 1 to 3 of 0 to 4' && close_losses deep8.10.out deep8full.10.out 0.005
    ok $? 'five layers of which two stay out, shard full against optimizer within 0.5 %'
    run_on 2 deep8alone 10 $deep parallelism.shard=full precision.fp8_weights=true && grep -q 'fp8_weights: 6 tensors of experts are not kept in BF16$' err && same_model deep8full deep8alone
    ok $? 'shard full without weights of experts in BF16: the same to the bit'
    crowd8="backend=cuda precision.recipe=fp8_block $wide deterministic=true parallelism.ep_size=2 model.num_experts_per_tok=1 model.router_aux_loss_coef=0 grad_acc_steps=2"
    run_on 2 roomy8 20 $crowd8 router.capacity=9 && ! grep -q 'step: done again' err &&
        run_on 2 crowded8 20 $crowd8 router.capacity=1 && grep -q 'step: done again: .* router.capacity 1 ' err && same_model roomy8 crowded8
    ok $? 'fp8_block, router.capacity too small: the same model to the bit'
    run_on 2 roomykept8 20 $crowd8 precision.fp8_activations=true router.capacity=9 && run_on 2 crowdedkept8 20 $crowd8 precision.fp8_activations=true router.capacity=1 &&
        grep -q 'step: done again: .* router.capacity 1 ' err && same_model roomykept8 crowdedkept8 && ! same_model roomy8 roomykept8
    ok $? 'and with activations in eight bits'
    for ranks in 1 2; do regulon $ranks eval spread8 $held_out validation.num_batches=1 >eval8.$ranks || sed 's/^/# /' err; done
    grep '^held-out loss' eval8.1 >a && grep '^held-out loss' eval8.2 >b && cmp -s a b
    ok $? 'eval in fp8_block: the same loss where one of two GPUs has no tokens'
fi
# more layers; the choice of two experts makes a curve chaotic where sums have another order: see gpu.sh
many="backend=cuda model.num_hidden_layers=4 model.num_local_experts=8"
run one $long $many grad_acc_steps=2
run_on 2 ep1 $long $many parallelism.ep_size=1 && close_losses one.$long.out ep1.$long.out 0.005
ok $? "4 layers of 8 experts, $long steps, data parallel: losses of one GPU within 0.5 %"
run_on 2 ep2 $long $many parallelism.ep_size=2 && close_losses one.$long.out ep2.$long.out 0.02
ok $? 'expert parallel within 2 %'
run every $long $many model.num_experts_per_tok=8 grad_acc_steps=2 &&
    run_on 2 every2 $long $many model.num_experts_per_tok=8 parallelism.ep_size=2 && close_losses every.$long.out every2.$long.out 0.005
ok $? 'with all experts within 0.5 %'

wide="backend=cuda model.num_local_experts=34 model.num_experts_per_tok=33"
run_on 2 wide 2 $wide parallelism.ep_size=2 && grep -q 'exchange: NCCL, not peer memory: 33 experts a token, it serves 32' err && grep -q 'exchange NCCL' err
ok $? 'more experts a token than peer memory serves: NCCL, which is said'
run_on 2 refused 2 $wide parallelism.ep_size=2 engine.exchange=peer >/dev/null
[ $? = 78 ] && [ "$(grep -c 'engine.exchange: peer: 33 experts a token, it serves 32' err)" = 1 ]
ok $? 'which is refused where peer memory is asked for'

# all to one expert, experts without tokens, ranks without tokens; each by both ways
for routing in balanced one empty half; do
    regulon 2 bench comm --shape small --tokens 1,5,333 --routing $routing --seconds 0.05 backend=cuda >out &&
        [ "$(grep -c '^peer' out)" = 3 ] && [ "$(grep -c '^nccl' out)" = 3 ] &&
        [ "$(grep -c '^add_peer\|^gather_peer' out)" = 6 ] && [ "$(grep -c '^add_nccl\|^gather_nccl' out)" = 6 ]
    status=$?
    ok $status "bench comm, routing $routing: nothing wrong"
    [ $status = 0 ] || sed 's/^/# /' out err
    regulon 2 bench comm --shape small --tokens 1,333 --routing $routing --seconds 0.05 backend=cuda precision.fp8_dispatch=true >out &&
        [ "$(grep -c '^peer' out)" = 2 ] && [ "$(grep -c '^nccl' out)" = 2 ]
    status=$?
    ok $status 'the same with rows in eight bits'
    [ $status = 0 ] || sed 's/^/# /' out err
done

# lose WHAT WORD...: of two ranks one is killed in the midst of a run with these words
lose() {
    what=$1
    shift
    rm -rf lost lost.*
    timeout -s KILL 100 $MPIEXEC -n 2 sh "$srcdir/tests/alone.sh" lost "$regulon" $train backend=cuda num_train_steps=1000000 watchdog.timeout_s=10 checkpoint.ckpt_dir=lost "$@" >out 2>&1 &
    job=$! tries=300
    until grep -q '^ *[0-9]*[05] ' lost.out.0 2>/dev/null || [ $tries = 0 ]; do sleep 0.1 && tries=$((tries - 1)); done
    kill -9 "$(cat lost.pid.1)"
    wait $job
    tries=200
    until [ -s lost.code.0 ] || [ $tries = 0 ]; do sleep 0.1 && tries=$((tries - 1)); done
    [ "$(cat lost.code.0)" = 70 ] && grep -q 'watchdog: rank 1 .* has died; last heard of in step [0-9]*' lost.err.0
    status=$?
    ok $status "a rank that is killed while $what travel: the other one names it and ends"
    [ $status = 0 ] || sed 's/^/# /' lost.err.0 out
    kill -9 "$(cat lost.pid.0)" 2>/dev/null
}
lose tokens
lose 'weights and gradients' parallelism.dp_size=2 parallelism.ep_size=1 parallelism.shard=full engine.collectives=peer
echo "1..$n"
