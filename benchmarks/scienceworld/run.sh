#!/usr/bin/env bash
# Remakes the results in this folder: benchmarks/scienceworld/run.sh  (from the project's root; about an hour on two cores)
set -euo pipefail
cd "$(dirname "$0")/../.."
here=benchmarks/scienceworld
out=${1:-runs/bench-scienceworld}
skillrise=.venv/bin/skillrise
export OMP_WAIT_POLICY=PASSIVE
easy=find-non-living-thing,lifespan-longest-lived,lifespan-shortest-lived
env=skillrise_envs:skillrise/ScienceWorld-v0
run=examples/scienceworld.toml

for split in test dev; do
    $skillrise curriculum build $env --split $split --families $easy --k 3 --seed 0 --limit 24 --out $here/$split.jsonl
done
$skillrise curriculum build $env --split train --families $easy --k 3 --seed 0 \
    --exclude $here/test.jsonl --exclude $here/dev.jsonl --out $here/train.jsonl

# two warm-ups: first the task alone, then with a document in front of it
$skillrise evaluate $run $here/test.jsonl $here/before.json
$skillrise warmup $run "$out/warm-1" --set warmup.documents=0
$skillrise warmup $run "$out/warm" --set policy.source="$out/warm-1" --set seed=1 --set warmup.documents=1 \
    --set warmup.demonstrations=64 --set warmup.steps=10
warm="policy.source=$out/warm"
$skillrise train $run "$out/run" --set "$warm" --set play.turns=4 --set rollout.concurrency=4
$skillrise evaluate $run $here/test.jsonl $here/warm.json --set "$warm"
$skillrise evaluate $run $here/test.jsonl $here/trained.json --set "$warm" --checkpoint "$out/run"
cat "$out"/warm-1/metrics.jsonl "$out/warm/metrics.jsonl" > $here/warmup-metrics.jsonl
cp "$out/run/metrics.jsonl" $here/train-metrics.jsonl
rm -f $here/*.trials.jsonl
