"""Rows are engine tokens; the optimiser step is what the formulas say and does not depend on how it is split."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import houses
from hypothesis import given
from hypothesis import strategies as st

from skillrise import policy as policies
from skillrise.checkpoint import load_weights
from skillrise.config import CreditConfig, LearnerConfig, LoraConfig, PlayConfig, PolicyConfig
from skillrise.credit import scheme
from skillrise.engine.hf import HFEngine
from skillrise.errors import InputError, SkillRiseError
from skillrise.learner import Learner
from skillrise.loss import kl_loss, policy_loss
from skillrise.passes import Stats
from skillrise.policy import Policy
from skillrise.pool import InlinePool
from skillrise.rollout import Rollout
from skillrise.rows import Row, packed_tokens, rows
from skillrise.types import Attempt, Completion, Credit, Group, Prompt, Task, TaskSequence, Trial, Turn

HOW = PlayConfig(prompts="brief", turns=3, action_tokens=8, document_tokens=12)


@pytest.fixture
def policy(tiny_folder: Path) -> Policy:
    return policies.load(PolicyConfig(context_tokens=512), tiny_folder)


def played(policy: Policy, context: str = "transcript", temperature: float = 1.0) -> list[Group]:
    how = HOW.model_copy(update={"context": context})
    rollout = Rollout(HFEngine(policy, 16, 512), InlinePool(), how, temperature=temperature)
    return rollout.groups(houses("train", 3, 2), 4, seed=1)


def batch(groups: list[Group], wanted: bool = True) -> list[Row]:
    """Rows with advantages; where the policy is too random to win, credits are made up from the trial's number."""
    out = []
    for group in groups:
        for n, trial in enumerate(group.trials):
            credits = [Credit(float(n), (n - 1.5) * (1 + 0.1 * t)) for t, _ in enumerate(trial.turns)]
            out += rows(trial, credits if wanted else [Credit(0.0)] * len(credits))
    return out


def gradient(learner: Learner, rows_: list[Row]) -> tuple[torch.Tensor, float]:
    """The gradient that one update applies, seen at the optimizer."""
    seen: list[torch.Tensor] = []
    step = learner.optimizer.step

    def spy(*args: object, **kwargs: object) -> None:
        seen.append(
            torch.cat([p.grad.flatten().clone() for p in learner.policy.model.parameters() if p.grad is not None])
        )

    learner.optimizer.step = spy
    metrics = learner.update(rows_, lr=0.0)
    learner.optimizer.step = step
    return (seen[0] if seen else torch.zeros(1)), metrics["loss/policy"]


@pytest.mark.parametrize("context", ["transcript", "window"])
def test_every_row_is_a_concatenation_of_engine_ids(policy: Policy, context: str) -> None:
    for group in played(policy, context):
        for trial in group.trials:
            made = rows(trial, [Credit(1.0, 1.0)] * len(trial.turns))
            whole = {(*t.completion.prompt_ids, *t.completion.token_ids) for t in trial.turns}
            assert all(tuple(row.ids) in whole for row in made)
            sampled = [i for row in made for i, on in zip(row.ids, row.trained, strict=True) if on]
            assert sampled == [i for t in trial.turns for i in t.completion.token_ids]
            assert len(made) == (len(trial.attempts) if context == "transcript" else len(trial.turns))
            behaviour = [p for row in made for p, on in zip(row.logprobs, row.trained, strict=True) if on]
            assert behaviour == [p for t in trial.turns for p in t.completion.logprobs]


def test_a_turn_that_does_not_extend_begins_a_row() -> None:
    prompt = Prompt("solve", (), "", 9)
    said = [
        Completion("", (1, 2), (3, 4), (-1.0, -1.0)),
        Completion("", (1, 2, 3, 4, 5), (6,), (-1.0,)),
        Completion("", (1, 2, 3, 9, 5, 6), (7,), (-1.0,)),
    ]
    turns = tuple(Turn("solve", 0, i, prompt, c, "", None, True) for i, c in enumerate(said))
    task = Task("e", {}, "f")
    trial = Trial(TaskSequence("s", "f", (task,), (False,)), (Attempt(task, "", turns, True, 1.0, "done"),))
    credits = [Credit(1.0, 0.5), Credit(None), Credit(1.0, -2.0)]
    first, second = rows(trial, credits)
    assert first.ids == [1, 2, 3, 4, 5, 6]
    assert first.trained == [False, False, True, True, False, False]
    assert first.advantages == [0, 0, 0.5, 0.5, 0, 0]
    assert second.ids == [1, 2, 3, 9, 5, 6, 7]
    assert second.advantages[-1] == -2.0


def test_an_engine_without_tokens_cannot_be_trained_on() -> None:
    task = Task("e", {}, "f")
    turn = Turn("solve", 0, 0, Prompt("solve", (), "", 9), Completion("hm"), "", None, True)
    trial = Trial(TaskSequence("s", "f", (task,), (False,)), (Attempt(task, "", (turn,), True, 1.0, "done"),))
    with pytest.raises(InputError, match="no token ids"):
        rows(trial, [Credit(1.0)])


def test_the_gradient_does_not_depend_on_micro_batches(policy: Policy) -> None:
    made = batch(played(policy))
    whole, loss = gradient(Learner(policy, LearnerConfig(micro_tokens=10**6, grad_clip=1e9)), made)
    for tokens in (1, 150, 400):
        split, split_loss = gradient(Learner(policy, LearnerConfig(micro_tokens=tokens, grad_clip=1e9)), made)
        torch.testing.assert_close(split, whole, atol=1e-5, rtol=1e-4)
        assert split_loss == pytest.approx(loss, abs=1e-5)
    assert float(whole.norm()) > 1e-3


def test_the_gradient_is_the_token_mean_of_advantage_times_score(policy: Policy) -> None:
    """On policy the clipped loss has the gradient of -mean(A log p): computed here row by row, without our learner."""
    made = batch(played(policy))
    got, _ = gradient(Learner(policy, LearnerConfig(grad_clip=1e9)), made)
    policy.model.zero_grad()
    tokens = sum(sum(r.trained) for r in made)
    for row in made:
        logits = policy.model(input_ids=torch.tensor([row.ids])).logits[0]
        logp = logits.log_softmax(-1)[:-1].gather(-1, torch.tensor(row.ids[1:])[:, None])[:, 0]
        (-(torch.tensor(row.advantages[1:]) * logp).sum() / tokens).backward()
    expected = torch.cat([p.grad.flatten() for p in policy.model.parameters() if p.grad is not None])
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-3)


def test_zero_advantage_rows_are_counted_and_not_run(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = played(policy)
    moving, idle = batch(groups), batch(groups, wanted=False)
    alone, _ = gradient(Learner(policy, LearnerConfig(grad_clip=1e9)), moving)
    run: list[int] = []
    real = policy.token_logprobs
    monkeypatch.setattr(policy, "token_logprobs", lambda ids, *a: run.append(len(ids)) or real(ids, *a))
    diluted, _ = gradient(Learner(policy, LearnerConfig(grad_clip=1e9)), moving + idle)
    assert sum(run) == sum(r.moves for r in moving)
    torch.testing.assert_close(diluted * 2, alone, atol=1e-5, rtol=1e-3)


def test_the_tokens_that_were_run_are_counted_as_packed(policy: Policy) -> None:
    groups = played(policy)
    made = batch(groups)
    metrics = Learner(policy, LearnerConfig(micro_tokens=10**6)).update(made + batch(groups, wanted=False), lr=0.0)
    assert metrics["tokens/run"] == packed_tokens([row for row in made if row.moves])
    assert metrics["tokens/run"] < sum(len(row.ids) for row in made)
    assert metrics["tokens/trained"] == 2 * sum(sum(row.trained) for row in made)


def test_between_updates_the_policy_is_its_own_module(policy: Policy) -> None:
    """So that a sampler's forward passes wait for no other process."""
    model, made = policy.model, batch(played(policy))
    learner = Learner(policy, LearnerConfig())
    learner.update(made, lr=0.0)
    assert policy.model is model
    assert not model.training


def test_an_update_raises_what_was_rewarded(policy: Policy) -> None:
    made = batch(played(policy))
    learner = Learner(policy, LearnerConfig())

    def mean(sign: int) -> float:
        out = 0.0
        for row in made:
            if any(a * sign > 0 for a in row.advantages):
                with torch.no_grad():
                    out += float(policy.token_logprobs([row.ids], [row.trained], 1.0)[0].sum())
        return out

    good, bad = mean(1), mean(-1)
    for _ in range(3):
        learner.update(made, lr=1e-3)
    assert mean(1) - good > mean(-1) - bad
    assert learner.version == 3


def test_mini_batches_take_several_steps_with_the_old_policy_fixed(policy: Policy) -> None:
    made = batch(played(policy))
    metrics = Learner(policy, LearnerConfig(minibatch_turns=8)).update(made, lr=1e-2)
    assert metrics["loss/optimizer_steps"] > 1
    assert metrics["loss/sampler_gap"] < 1e-4  # old log-probabilities were taken before the first step
    assert metrics["loss/clip_share"] > 0  # and later steps moved away from them


@pytest.mark.parametrize("tokens", [60, 10**6])
def test_importance_weights_are_described_over_all_micro_batches(policy: Policy, tokens: int) -> None:
    made = [row for row in batch(played(policy)) if row.moves]
    own = [p for row in made for p, on in zip(row.logprobs, row.trained, strict=True) if on]
    gaps = torch.linspace(-0.5, 0.5, len(own), dtype=torch.float64)
    shift = iter(gaps.tolist())
    for row in made:
        row.logprobs = [p - next(shift) if on else p for p, on in zip(row.logprobs, row.trained, strict=True)]
    metrics = Learner(policy, LearnerConfig(micro_tokens=tokens, importance_cap=1.5)).update(made, lr=0.0)
    weights = gaps.exp().clamp(max=1.5)
    assert metrics["loss/importance"] == pytest.approx(float(weights.mean()), abs=1e-5)
    assert metrics["loss/importance_std"] == pytest.approx(float(weights.std(correction=0)), abs=1e-5)
    share = float(weights.sum() ** 2 / (len(own) * weights.square().sum()))
    assert metrics["loss/importance_ess"] == pytest.approx(share, abs=1e-5)
    assert metrics["loss/kl_sampler"] == pytest.approx(float((torch.expm1(gaps) - gaps).mean()), abs=1e-5)


def test_on_policy_all_tokens_weigh_the_same(policy: Policy) -> None:
    metrics = Learner(policy, LearnerConfig()).update(batch(played(policy)), lr=0.0)
    assert metrics["loss/importance_std"] < 1e-4
    assert metrics["loss/importance_ess"] == pytest.approx(1.0, abs=1e-6)
    assert metrics["loss/kl_sampler"] == pytest.approx(0.0, abs=1e-6)


def test_weights_are_described_where_the_device_knows_no_float64() -> None:
    class Apple(torch.Tensor):
        def double(self) -> torch.Tensor:  # type: ignore[override]
            raise TypeError("MPS has no float64")

        def cpu(self) -> torch.Tensor:  # type: ignore[override]
            return self.as_subclass(torch.Tensor)

    stats = Stats()
    stats.add_weights("w", torch.tensor([1.0, 3.0]).as_subclass(Apple))
    assert stats.everywhere() == {"w": 2.0, "w_std": 1.0, "w_ess": 0.8}


def test_kl_holds_on_to_the_initial_policy(policy: Policy) -> None:
    made = batch(played(policy))
    learner = Learner(policy, LearnerConfig(kl=0.1))
    first = learner.update(made, lr=1e-2)
    second = learner.update(made, lr=1e-2)
    assert first["loss/kl"] == pytest.approx(0.0, abs=1e-9)
    assert second["loss/kl"] > 1e-4


def test_a_loss_that_is_not_finite_leaves_the_weights(policy: Policy) -> None:
    made = batch(played(policy))
    made[0].advantages = [float("inf") if a else 0.0 for a in made[0].advantages]
    before = {n: p.clone() for n, p in policy.model.named_parameters()}
    with pytest.raises(SkillRiseError, match="not finite"):
        Learner(policy, LearnerConfig()).update(made, lr=1e-2)
    assert all(torch.equal(before[n], p) for n, p in policy.model.named_parameters())


@pytest.mark.parametrize("lora", [None, LoraConfig(rank=4)])
def test_saved_state_goes_on_as_if_nothing_happened(tiny_folder: Path, tmp_path: Path, lora: LoraConfig | None) -> None:
    torch.manual_seed(0)
    config = PolicyConfig(context_tokens=512, lora=lora)
    policy = policies.load(config, tiny_folder)
    made = batch(played(policy))
    learner = Learner(policy, LearnerConfig())
    learner.update(made, lr=1e-3)
    learner.save(tmp_path)
    expected = [learner.update(made, lr=1e-3) for _ in range(2)]
    again = Learner(policies.load(config, tiny_folder), LearnerConfig())
    again.load(tmp_path, 1)
    assert [again.update(made, lr=1e-3) for _ in range(2)] == expected
    assert {p.suffix for p in tmp_path.iterdir()} == {".safetensors"}


def test_weights_of_another_model_are_refused(policy: Policy, tiny_folder: Path, tmp_path: Path) -> None:
    Learner(
        policies.load(PolicyConfig(context_tokens=512, lora=LoraConfig(rank=4)), tiny_folder), LearnerConfig()
    ).save(tmp_path)
    with pytest.raises(InputError, match="another model or adapter shape"):
        load_weights(policy, tmp_path)


def test_saved_model_folders_hold_the_merged_weights(tiny_folder: Path, tmp_path: Path) -> None:
    policy = policies.load(PolicyConfig(context_tokens=512, lora=LoraConfig(rank=4)), tiny_folder)
    made = batch(played(policy))
    Learner(policy, LearnerConfig()).update(made, lr=1e-2)
    policy.save(tmp_path / "merged")
    merged = policies.load(PolicyConfig(context_tokens=512), tmp_path / "merged")
    with torch.no_grad():
        a, b = (x.token_logprobs([made[0].ids], [made[0].trained], 1.0)[0] for x in (policy, merged))
    torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


def test_policy_loss_clips_asymmetrically() -> None:
    new = torch.tensor([0.5, 0.5, -0.5, -0.5, 0.0]).requires_grad_()
    old = torch.zeros(5)
    advantages = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0])
    out = policy_loss(new, old, old - 1.0, advantages, 0.2, 0.28, 2.0)
    assert out.clipped.tolist() == [True, False, False, True, False]
    assert out.weight.tolist() == [2.0] * 5  # e^1 = 2.7 is capped
    expected = [-2 * 1.28, 2 * 1.6487, -2 * 0.6065, 2 * 0.8, -2.0]
    assert out.loss.tolist() == pytest.approx(expected, abs=1e-3)
    out.loss.sum().backward()
    assert new.grad is not None
    assert [g == 0 for g in new.grad.tolist()] == [True, False, False, True, False]


@given(st.lists(st.floats(-5, 0), min_size=1, max_size=8), st.floats(-2, 2))
def test_kl_is_zero_at_home_and_positive_elsewhere(logprobs: list[float], shift: float) -> None:
    new = torch.tensor(logprobs)
    assert torch.all(kl_loss(new, new) == 0)
    assert torch.all(kl_loss(new, new + shift) >= -1e-6 * abs(shift))  # rounding


def test_credit_reaches_the_rows_of_both_roles(policy: Policy) -> None:
    """Force outcomes so that both roles have a signal, then follow the numbers into the rows."""
    [group, *_] = played(policy)
    trials = tuple(
        replace(t, attempts=tuple(replace(a, won=(n % 2 == 0)) for a in t.attempts)) for n, t in enumerate(group.trials)
    )
    group = Group(group.sequence, trials)
    credits = scheme(CreditConfig(reward=1.0, invalid_penalty=0.0)).assign(group)
    made = rows(trials[0], credits[0])
    curate = next(c for c, t in zip(credits[0], trials[0].turns, strict=True) if t.role == "curate")
    assert curate.advantage == pytest.approx((0.6 + 0.36) / 2)
    assert set(made[0].advantages) == {0.0, 0.5, curate.advantage}
