"""The page itself: everything gathered, handed to the template, and written."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import jinja2
from markupsafe import Markup

from skillrise.errors import InputError
from skillrise.files import write_text
from skillrise.report.charts import evaluation_chart, optima, training_charts
from skillrise.report.diff import difference
from skillrise.report.facts import headline
from skillrise.report.load import read_evaluations, read_metrics, run_name
from skillrise.report.trials import sample
from skillrise.report.values import brief, clip, num, visible

PARTS = ("config.toml", "metrics.jsonl", "trials", "evaluations")
"""What a run folder can hold."""


def write_report(run_dir: Path, max_trials: int = 40) -> Path:
    """Write `run_dir/report.html`, atomically.

    Args:
        run_dir: A folder that `skillrise train` or `evaluate` wrote; any of its files may be missing.
        max_trials: The most trials to show, spread over a few steps.

    Returns:
        The path of the page.

    Raises:
        InputError: If the folder holds nothing of a run.
    """
    if not any((run_dir / part).exists() for part in PARTS):
        raise InputError(
            f"{run_dir} holds no run (config.toml, metrics.jsonl, trials/ or evaluations/): "
            "name the folder that `skillrise train` wrote."
        )
    metrics, evaluations = read_metrics(run_dir), read_evaluations(run_dir)
    config = run_dir / "config.toml"
    text = config.read_text("utf-8", "replace") if config.is_file() else ""
    template = jinja().get_template("report.html.j2")
    html = template.render(
        name=run_name(text, run_dir),
        facts=headline(metrics, evaluations),
        evaluations=evaluations,
        positions=sorted({p for e in evaluations for p in e["positions"]}),
        optima=optima(evaluations),
        evaluation_chart=evaluation_chart(evaluations),
        charts=training_charts(metrics),
        steps=sample(run_dir, max_trials),
        config=text,
    )
    path = run_dir / "report.html"
    write_text(path, html)
    return path


def jinja() -> jinja2.Environment:
    """The templates, with everything escaped and control characters as pictures."""
    env = jinja2.Environment(
        loader=jinja2.PackageLoader("skillrise", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) or not isinstance(value, str) else visible(value),
    )
    env.filters.update(clip=clip, brief=brief, num=num, csp_hash=_csp_hash)
    env.globals.update(difference=difference)
    return env


def _csp_hash(css: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
