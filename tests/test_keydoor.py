"""KeyDoor: nothing tells the key but trying, the optimum is true, the expert teaches format and not what matters."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from typing import Any

import pytest
from conftest import KEYDOOR
from hypothesis import given
from hypothesis import strategies as st

from skillrise.env import make
from skillrise.errors import InputError
from skillrise.types import Task
from skillrise_envs import keydoor
from skillrise_envs.keydoor import SPARE_STEPS, THEMES, KeyDoorEnv, secret

SPEC = {"house": 3, "door": 0}


def begin(seed: int = 0, env: KeyDoorEnv | None = None, **spec: Any) -> tuple[KeyDoorEnv, str, dict[str, Any]]:
    env = env or KeyDoorEnv()
    text, info = env.reset(seed=seed, options={"task": {**SPEC, **spec}})
    return env, text, info


def full(**spec: Any) -> dict[str, Any]:
    return {"keys": 8, "tries": 2, "level": 1, "theme": "colour", **SPEC, **spec}


def test_the_right_key_opens_and_the_others_fail() -> None:
    key = secret(full(tries=8))
    env, _, info = begin(tries=8)
    assert info["admissible"] == [f"try {name}" for name in THEMES["colour"][:8]]
    for name in [n for n in env.names if n != key]:
        text, reward, terminated, truncated, info = env.step(f"try {name}")
        assert text.startswith(f"{name} fails.")
        assert (reward, terminated, truncated, info["won"], info["score"]) == (0.0, False, False, False, 0.0)
    text, reward, terminated, truncated, info = env.step(f"try {key}")
    assert text == f"{key} fits. The door is open."
    assert (reward, terminated, truncated, info["won"], info["score"]) == (1.0, True, False, True, 1.0)
    assert info["admissible"] == []


def test_the_same_key_opens_all_doors_of_a_house() -> None:
    for door in range(5):
        env, _, _ = begin(door=door)
        assert env.step(f"try {secret(full())}")[4]["won"]


def test_tries_run_out() -> None:
    env, text, _ = begin(tries=2)
    assert "2 left" in text
    wrong = [name for name in env.names if name != env.key]
    text, _, terminated, *_ = env.step(f"try {wrong[0]}")
    assert ("1 left" in text, terminated) == (True, False)
    _, _, terminated, truncated, info = env.step(f"try {wrong[1]}")
    assert (terminated, truncated, info["won"]) == (True, False, False)


def test_what_is_no_try_costs_none_but_not_for_ever() -> None:
    env, _, _ = begin()
    for i in range(SPARE_STEPS):
        text, _, terminated, truncated, _ = env.step(["jump", "go on", "try", "try teal", "", "\0"][i % 6])
        assert "2 left" in text
        assert (terminated, truncated) == (False, i == SPARE_STEPS - 1)


@pytest.mark.parametrize("form", ["try {}", "use {}", "TRY THE {} KEY", "  use the {} key "])
def test_forms_of_trying(form: str) -> None:
    env, _, _ = begin()
    assert env.step(form.format(env.key))[4]["won"]


def test_a_level_is_a_longer_way() -> None:
    env, text, info = begin(level=3)
    assert info["admissible"] == ["go on"]
    assert "locked" not in text
    assert env.step(f"try {env.key}")[4]["won"] is False  # not there yet
    env.step("go on")
    text, *_ = env.step("Go on")
    assert "locked, 2 left" in text
    assert env.step(f"try {env.key}")[4]["won"]


@pytest.mark.parametrize("level", [1, 4])
def test_nothing_tells_the_key_before_a_try(monkeypatch: pytest.MonkeyPatch, level: int) -> None:
    def episode(key: str) -> list[object]:
        monkeypatch.setattr(keydoor, "secret", lambda spec: key)
        env, text, info = begin(seed=5, level=level)
        return [
            text,
            info,
            env.rules,
            *(env.step(action) for action in ["look", *["go on"] * (level - 1), "go on", "open"]),
        ]

    seen = [episode(name) for name in THEMES["colour"][:8]]
    assert all(other == seen[0] for other in seen)


def test_what_is_noticed_has_nothing_to_do_with_the_key() -> None:
    seen = Counter()
    for house in range(600):
        env, text, _ = begin(house=house, keys=2, tries=1)
        seen[(env.key == "red", text.split(".")[0])] += 1
    for detail in {detail for _, detail in seen}:
        red, n = seen[True, detail], seen[True, detail] + seen[False, detail]
        assert abs(red / n - 0.5) < 4 * 0.5 / n**0.5


def test_secrets_are_spread_evenly_over_the_keys() -> None:
    counts = Counter(secret(full(house=house)) for house in range(4000))
    assert set(counts) == set(THEMES["colour"][:8])
    assert all(abs(n - 500) < 4 * (4000 * 1 / 8 * 7 / 8) ** 0.5 for n in counts.values())


def test_the_seed_decides_only_what_is_noticed() -> None:
    texts = {begin(seed=seed)[1] for seed in range(30)}
    assert len(texts) > 3
    assert len({text.split(". ", 1)[1] for text in texts}) == 1
    assert begin(seed=4)[1] == begin(seed=4)[1]


@given(
    n=st.integers(2, 12),
    tries=st.lists(st.integers(1, 12), min_size=1, max_size=6),
    theme=st.sampled_from(sorted(THEMES)),
)
def test_the_optimum_against_all_secrets(n: int, tries: list[int], theme: str) -> None:
    """A player that never tries a key twice, and the fitting one once it is known: its wins over all secrets."""
    tries = [min(t, n) for t in tries]
    specs = [{"house": 1, "door": i, "keys": n, "tries": t, "theme": theme} for i, t in enumerate(tries)]
    won = [0] * len(tries)
    for key in range(n):
        untried, known = list(range(n)), False
        for position, t in enumerate(tries):
            for _ in range(0 if known else min(t, len(untried))):
                known = untried.pop() == key
                if known:
                    break
            won[position] += known
    assert KeyDoorEnv().optimum(specs) == pytest.approx([w / n for w in won])


def test_no_order_of_trying_beats_the_optimum() -> None:
    """All ways to choose 2 of 4 keys at each of 2 doors: none finds the key more often over all secrets."""
    best = [0.0, 0.0]
    for first, second in itertools.product(itertools.combinations(range(4), 2), repeat=2):
        best[0] = max(best[0], sum(key in first for key in range(4)) / 4)
        best[1] = max(best[1], sum(key in first or key in second for key in range(4)) / 4)
    assert KeyDoorEnv().optimum([{**SPEC, "keys": 4}, {**SPEC, "keys": 4, "door": 1}]) == best


def test_no_optimum_across_houses_or_for_a_door_met_twice() -> None:
    env = KeyDoorEnv()
    assert env.optimum([{**SPEC}, {"house": 4, "door": 1}]) is None
    assert env.optimum([{**SPEC}, {**SPEC}]) is None
    assert env.optimum([{**SPEC}, {**SPEC, "door": 1}, {**SPEC, "door": 2}]) == [0.25, 0.5, 0.75]


BAD: list[dict[str, Any]] = [
    {"house": 1},
    {"door": 1},
    {},
    {**SPEC, "colour": 1},
    {**SPEC, "house": -1},
    {**SPEC, "house": "3"},
    {**SPEC, "door": 1.0},
    {**SPEC, "door": True},
    {**SPEC, "keys": 1},
    {**SPEC, "keys": 13},
    {**SPEC, "tries": 0},
    {**SPEC, "tries": 9},
    {**SPEC, "level": 0},
    {**SPEC, "level": 51},
    {**SPEC, "theme": "wood"},
    {**SPEC, "theme": None},
    {**SPEC, "theme": ["colour"]},
]


@pytest.mark.parametrize("spec", BAD)
def test_a_wrong_task_is_refused(spec: dict[str, Any]) -> None:
    env = KeyDoorEnv()
    for use in (
        lambda: env.reset(seed=0, options={"task": spec}),
        lambda: env.optimum([spec]),
        lambda: env.demonstrate(Task(KEYDOOR, spec, "house-3"), 0),
    ):
        with pytest.raises(InputError, match="KeyDoor task") as caught:
            use()
        assert "\n" not in str(caught.value)


def test_a_missing_task_is_refused() -> None:
    for options in (None, {}):
        with pytest.raises(InputError):
            KeyDoorEnv().reset(seed=0, options=options)


@pytest.mark.parametrize(
    "options",
    [
        {"keys": 1},
        {"tries": 9},
        {"theme": "wood"},
        {"houses": 0},
        {"houses": 1_000_001},
        {"doors": 0},
        {"levels": 0},
        {"levels": 51},
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        make(KEYDOOR, options)
    with pytest.raises(InputError, match="options"):
        make(KEYDOOR, {"floors": 2})


def test_splits_share_no_house_and_every_task_can_be_played() -> None:
    env = KeyDoorEnv(houses=20, doors=6, levels=3, keys=5, tries=1, theme="metal")
    splits = {split: list(env.catalogue(split)) for split in ("train", "dev", "test")}
    assert {len(tasks) for tasks in splits.values()} == {120}
    taken = [{task.spec["house"] for task in tasks} for tasks in splits.values()]
    assert all(not one & other for one, other in itertools.combinations(taken, 2))
    for task in splits["dev"]:
        assert task.env == KEYDOOR
        assert task.difficulty == task.spec["level"]
        env.reset(seed=0, options={"task": dict(task.spec)})
    levels = [task.difficulty for task in splits["train"][:6]]
    assert levels == [1, 1, 2, 2, 3, 3]
    assert len({task.family for task in splits["train"]}) == 20


def test_the_catalogue_of_some_families() -> None:
    env = KeyDoorEnv(houses=20)
    some = list(env.catalogue("train", ["house-3", "house-5"]))
    assert [task.family for task in some] == ["house-3"] * 8 + ["house-5"] * 8
    assert some[:8] == [task for task in env.catalogue("train") if task.family == "house-3"]


@pytest.mark.parametrize(
    "families", [["nowhere"], ["house-3", "nowhere"], ["house-20"], ["house-1000000"], ["house-03"]]
)
def test_an_unknown_family_is_refused_by_name(families: list[str]) -> None:
    with pytest.raises(InputError, match=families[-1]):
        list(KeyDoorEnv(houses=20).catalogue("train", families))


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(InputError, match=r"'validation'.*train, dev, test"):
        list(KeyDoorEnv().catalogue("validation"))


def remarks(text: str) -> list[str]:
    return [part.strip() for part in re.findall(r"[^.]+\.", text) if re.search("fits|fails|Smell", part)]


def replay(env: KeyDoorEnv, task: Task, seed: int, actions: tuple[str, ...]) -> tuple[list[str], bool]:
    text, info = env.reset(seed=seed, options={"task": dict(task.spec)})
    seen, done = [text], False
    for action in actions:
        assert not done, "an action after the end"
        text, _, done, _, info = env.step(action)
        seen.append(text)
    assert done, "the expert left a door that it could still try"
    return seen, info["won"]


def test_demonstrations() -> None:
    """All at once, over many: they are legal, they use the document, and their notes prefer no kind of remark."""
    env = KeyDoorEnv(levels=3)
    tasks = list(env.catalogue("train"))[:400]
    kept: dict[str, list[bool]] = {"fits": [], "fails": [], "Smell": []}
    told = won_told = won = 0
    for seed, task in enumerate(tasks * 3):
        shown = env.demonstrate(task, seed)
        assert shown == env.demonstrate(task, seed)
        seen, solved = replay(env, task, seed, shown.actions)
        won += solved
        known = remarks(shown.document)
        assert " ".join(known) == shown.document
        key = secret(full(**task.spec))
        assert f"{key} fails." not in known  # what it says of keys is true
        assert all(not r.endswith("fits.") or r == f"{key} fits." for r in known)
        if f"{key} fits." in known:
            told, won_told = told + 1, won_told + solved
            assert [a for a in shown.actions if a != "go on"] == [f"try {key}"]
        tried = [action[4:] for action in shown.actions if action != "go on"]
        assert len(set(tried)) == len(tried)
        assert not [name for name in tried if f"{name} fails." in known]
        assert shown.notes is not None
        noted, source = remarks(shown.notes), list(dict.fromkeys([*known, *remarks(" ".join(seen))]))
        assert " ".join(noted) == shown.notes
        assert [r for r in source if r in noted] == noted  # a part of them, none twice, in their order
        for remark in source:
            kept[next(kind for kind in kept if kind in remark)].append(remark in noted)
    assert told == won_told
    assert 0.3 < told / 1200 < 0.5
    assert 0 < won < 1200
    share = {kind: sum(flags) / len(flags) for kind, flags in kept.items()}
    assert min(map(len, kept.values())) > 400
    assert abs(share["fits"] - share["Smell"]) < 0.08
    assert abs(share["fails"] - share["Smell"]) < 0.08


def test_a_document_never_gives_the_key_away_by_what_it_leaves_out() -> None:
    env = KeyDoorEnv()
    for seed, task in enumerate(list(env.catalogue("train"))[:300]):
        known = remarks(env.demonstrate(task, seed).document)
        assert sum(r.endswith("fails.") for r in known) <= 6  # at least one wrong key stays open besides the right one


def test_a_thriftier_expert_writes_less() -> None:
    tasks = list(KeyDoorEnv().catalogue("train"))[:200]

    def written(thrift: float) -> int:
        env = KeyDoorEnv(thrift=thrift)
        return sum(len(remarks(env.demonstrate(task, seed).notes or "")) for seed, task in enumerate(tasks))

    assert written(0.5) > 1.2 * written(1.0) > 1.2 * 1.2 * written(2.0)
    for wrong in (0, -1.0, float("nan"), "much"):
        with pytest.raises(InputError, match="KeyDoor option thrift"):
            KeyDoorEnv(thrift=wrong)  # type: ignore[arg-type]
