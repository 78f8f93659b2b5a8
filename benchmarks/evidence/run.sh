#!/usr/bin/env bash
# Everything in this folder, anew, from the project's root; started again, it goes on where it was stopped:
#   benchmarks/evidence/run.sh keydoor      after `make setup`; about an hour on two cores
#   benchmarks/evidence/run.sh alfworld     hours; see the head of alfworld.toml for what it needs, and name its Python's folder: BIN=.venv-x/bin
set -euo pipefail
cd "$(dirname "$0")/../.."
name=${1:?name keydoor or alfworld}
bin=${BIN:-.venv/bin}
here=benchmarks/evidence
runs=runs/evidence
export OMP_WAIT_POLICY=PASSIVE

keep() { # what is committed of a folder of results
    mkdir -p "$here/$2"
    cp -r "$1"/result.json "$1"/table.md "$1"/table.csv "$1"/figures "$here/$2"
}

case $name in
keydoor)
    env=skillrise_envs:skillrise/KeyDoor-v0
    $bin/skillrise curriculum build $env --k 3 --per-family 1 --out $runs/keydoor-train.jsonl
    $bin/skillrise curriculum build $env --k 4 --per-family 1 --out $runs/keydoor-train-k4.jsonl
    $bin/skillrise curriculum build $env --split test --k 8 --per-family 1 --out $runs/keydoor-test.jsonl
    OMP_NUM_THREADS=1 $bin/skillrise compare $here/keydoor.toml $runs/keydoor &
    OMP_NUM_THREADS=1 $bin/skillrise compare $here/keydoor.toml $runs/keydoor
    wait
    keep $runs/keydoor keydoor
    run=$runs/keydoor/runs/skillrise/seed-0
    $bin/skillrise scale $run/config.toml $runs/keydoor-test.jsonl $runs/keydoor-scale --checkpoint $run --protocol both --limit 64
    keep $runs/keydoor-scale keydoor-scale
    OMP_NUM_THREADS=1 $bin/python -m benchmarks.evidence.cost $here/keydoor.toml $runs/keydoor --rounds 2 --steps 10 --out $here/cost.json
    ;;
alfworld)
    $bin/skillrise compare $here/alfworld.toml $runs/alfworld
    keep $runs/alfworld alfworld
    $bin/skillrise scale $runs/alfworld/runs/skillrise/seed-0/config.toml curricula/skillrise_curricula/alfworld/test.jsonl \
        $runs/alfworld-scale --checkpoint $runs/alfworld/runs/skillrise/seed-0 --k 1,2,4 --limit 8
    keep $runs/alfworld-scale alfworld-scale
    ;;
*) echo "nothing is called $name: name keydoor or alfworld" >&2 && exit 1 ;;
esac
