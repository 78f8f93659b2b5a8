"""The report: what the page must hold, and what must never get onto it."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillrise.errors import InputError
from skillrise.report import difference, write_report

HOSTILE = (
    "<script>alert(1)</script></details></pre></style></title><img src=http://x.test/a onerror=alert(1)>"
    '<a href="javascript:alert(1)">\' " {{7*7777}} {% raw %} <!-- \x00\x1b[31m\ud800 ]]> &lt;b&gt;'
)
TAGS = {
    *(
        "html",
        "head",
        "meta",
        "title",
        "link",
        "style",
        "body",
        "header",
        "nav",
        "main",
        "section",
        "footer",
        "div",
        "p",
    ),
    *("span", "b", "code", "small", "h1", "h2", "h3", "h4", "a", "pre", "ins", "del", "ul", "li", "dl", "dt", "dd"),
    *("table", "thead", "tbody", "tr", "th", "td", "details", "summary", "svg", "path", "text", "circle"),
}
VOID = {"meta", "link"}


class Page(HTMLParser):
    """What a browser would see: tags, attributes, text; and whether the tags nest."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.open: list[str] = []
        self.nested = True
        self.source = path.read_text("utf-8")
        self.feed(self.source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID and not self.get_starttag_text().endswith("/>"):  # type: ignore[union-attr]
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        self.nested = self.nested and bool(self.open) and self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += f" {data}"

    def assert_harmless(self) -> None:
        assert self.tags <= TAGS
        assert self.nested
        assert not self.open
        assert not [a for a in self.attributes if a[1].startswith("on") or a[1] in ("style", "srcdoc", "formaction")]
        links = [
            value for _, name, value in self.attributes if name in ("src", "href", "srcset", "action", "xlink:href")
        ]
        assert all(value.startswith(("#", "data:image/svg+xml,")) for value in links)
        assert not re.search(r"url\(|@import", self.source)


def turn(text: str = "go", **over: Any) -> dict[str, Any]:
    return {
        "role": "solve",
        "position": 0,
        "index": 0,
        "messages": [{"role": "user", "content": text}],
        "reply": text,
        "observation": text,
        "action": text,
        "valid": True,
        "finish_reason": "stop",
        "prompt_tokens": 10,
        "tokens": 3,
        "logprob": -0.5,
        "weight_version": 0,
        "return": 1.0,
        "advantage": 0.5,
    } | over


def trial(number: int = 0, won: tuple[bool, ...] = (True, False), text: str = "go", **over: Any) -> dict[str, Any]:
    task = {"env": text, "spec": {"t": text}, "family": text, "difficulty": 1}
    return {
        "step": 1,
        "trial": number,
        "sequence": {"id": f"seq {text}", "family": text, "padded": [False] * len(won), "tasks": [task] * len(won)},
        "error": None,
        "attempts": [
            {
                "document_in": f"{text} {at}",
                "task": text,
                "won": w,
                "score": float(w),
                "stop": "done",
                "final": text,
                "turns": [turn(text)],
                "carry": turn(text, role="curate") if at + 1 < len(won) else None,
            }
            for at, w in enumerate(won)
        ],
    } | over


def evaluation(**over: Any) -> dict[str, Any]:
    return {
        "label": "after",
        "protocol": "cross",
        "carry": "skill",
        "positions": [1, 2],
        "success": [0.25, 0.625],
        "low": [0.2, 0.5],
        "high": [0.3, 0.75],
        "n": [64, 64],
        "pooled": {"success": 0.4375, "low": 0.4, "high": 0.5, "n": 128},
        "score": [0.3, 0.7],
        "optimum": [0.25, 0.5],
        "temperature": 0.7,
        "seed": 0,
        "sequences": 64,
        "failed": 0,
        "step": 3,
    } | over


def write_run(
    folder: Path,
    trials: list[dict[str, Any]] | None = None,
    metrics: list[dict[str, Any]] | None = None,
    evaluations: list[dict[str, Any]] | None = None,
    config: str | None = None,
) -> Path:
    if trials is not None:
        (folder / "trials").mkdir()
        for step in {item["step"] for item in trials}:
            lines = [json.dumps(item) for item in trials if item["step"] == step]
            (folder / "trials" / f"step-{step:06d}.jsonl").write_text("\n".join(lines) + "\n")
    if metrics is not None:
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in metrics))
    if evaluations is not None:
        (folder / "evaluations").mkdir()
        for at, item in enumerate(evaluations):
            (folder / "evaluations" / f"{at}.json").write_text(json.dumps(item))
    if config is not None:
        (folder / "config.toml").write_text(config)
    return folder


def page(folder: Path, max_trials: int = 40) -> Page:
    path = write_report(folder, max_trials)
    assert path == folder / "report.html"
    assert not list(folder.glob(".report*")), "the temporary file must be gone"
    seen = Page(path)
    seen.assert_harmless()
    return seen


def test_hostile_text_is_only_text(tmp_path: Path) -> None:
    folder = write_run(
        tmp_path,
        trials=[trial(text=HOSTILE), trial(1, error=HOSTILE, text=HOSTILE)],
        metrics=[{"step": 1, HOSTILE: 0.5, f"loss/{HOSTILE}": 1.0}],
        evaluations=[evaluation(label=HOSTILE, protocol=HOSTILE, carry=HOSTILE, seed=HOSTILE)],
        config=f"name = {json.dumps(HOSTILE.replace(chr(0xD800), ''))}\n",
    )
    seen = page(folder)
    assert "<script>alert(1)</script>" in seen.text, "shown, as text"
    assert "{{7*7777}}" in seen.text
    assert "54439" not in seen.source
    assert "\x00" not in seen.source
    assert "\x1b" not in seen.source
    assert "␀␛[31m\N{REPLACEMENT CHARACTER}" in seen.text


def test_the_policy_of_the_page_forbids_all_but_its_own_style(tmp_path: Path) -> None:
    seen = page(write_run(tmp_path, metrics=[{"step": 1}]))
    policy = next(value for tag, _, value in seen.attributes if tag == "meta" and value.startswith("default-src"))
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy


def test_long_texts_are_bounded_and_say_so(tmp_path: Path) -> None:
    big = "<b>" * 350_000
    seen = page(write_run(tmp_path, trials=[trial(text=big)]))
    assert len(seen.source) < 1_000_000
    assert "… cut: 1,044,000 of 1,050,000 characters are not shown" in seen.text
    assert "only the first 6,000 characters are compared" in seen.text


def test_missing_files_are_tolerated(tmp_path: Path) -> None:
    parts: dict[str, Any] = {
        "trials": [trial()],
        "metrics": [{"step": 1, "success/p1": 0.5}],
        "evaluations": [evaluation()],
        "config": "name = 'x'",
    }
    for key, value in parts.items():
        folder = tmp_path / key
        folder.mkdir()
        page(write_run(folder, **{key: value}))


def test_a_folder_without_a_run_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no run"):
        write_report(tmp_path)
    with pytest.raises(InputError, match="holds no run"):
        write_report(tmp_path / "nowhere")


def test_torn_and_damaged_files_are_passed_over(tmp_path: Path) -> None:
    folder = write_run(
        tmp_path, [trial()], [{"step": 1, "success/p1": 0.5}], [evaluation(), evaluation(low=None)], "x = ["
    )
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "succ')
    with (folder / "trials" / "step-000001.jsonl").open("a") as file:
        file.write('[1]\n{"trial": 1, "sequence": null}\n{"trial": 2, "seq')
    (folder / "evaluations" / "torn.json").write_text('{"label": "to')
    seen = page(folder)
    assert "Trial 1" in seen.text
    assert "Trial 2" not in seen.text
    assert tmp_path.name in seen.text


def test_nan_and_infinite_numbers_are_shown_as_none(tmp_path: Path) -> None:
    nan, inf = float("nan"), float("inf")
    rows = [
        {"step": step, "success/p1": nan if step == 2 else 0.5, "loss/policy": inf, "lr": nan} for step in range(1, 4)
    ]
    hurt = trial()
    hurt["attempts"][0] |= {"score": nan, "turns": [turn() | {"advantage": nan, "logprob": None, "return": nan}]}
    seen = page(write_run(tmp_path, [hurt], rows, [evaluation(success=[nan, None], low=[nan, nan], high=[None, inf])]))
    assert not re.search(r"\b(nan|inf)\b", seen.source, re.IGNORECASE)
    assert "\N{EN DASH}" in seen.text


def test_padded_slots_and_failed_trials_are_shown_as_such(tmp_path: Path) -> None:
    padded = trial(won=(True, True))
    padded["sequence"]["padded"] = [False, True]
    padded["attempts"][1]["turns"] = [turn() | {"return": None, "advantage": 0.0}]
    failed = trial(1, won=(False,), error="EnvironmentFailure: the engine died")
    failed["sequence"] = padded["sequence"]
    seen = page(write_run(tmp_path, [padded, failed]))
    text = " ".join(seen.text.split())
    assert "2 ✓ padded" in text
    assert "Padded slot" in text
    assert "not scored" in text
    assert "failed: counts nowhere" in text
    assert "EnvironmentFailure: the engine died" in text
    assert "2 trials; solved 1 of 1, (1 of 1, padded)" in text, "a failed trial is in no count"


def test_the_sample_prefers_groups_with_mixed_outcomes_and_keeps_to_its_size(tmp_path: Path) -> None:
    trials = []
    for step in range(1, 11):
        for group in range(4):
            for number in range(4):
                won = (group == 2 and number == 0,) * 2
                item = trial(4 * group + number, won=won, step=step)
                item["sequence"]["id"] = f"sequence-{group}"
                trials.append(item)
    write_run(tmp_path, trials)
    text = " ".join(page(tmp_path, max_trials=10).text.split())
    assert re.findall(r"Step (\d+)", text)[0] == "1"
    assert re.findall(r"Step (\d+)", text)[-1] == "10"
    assert len(re.findall(r"Trial \d+", text)) == 10
    assert set(re.findall(r"sequence-\d", text)) == {"sequence-2"}, "the only group with something to compare"
    assert "Trial" not in page(tmp_path, max_trials=0).text
    assert len(re.findall(r"Trial \d+", page(tmp_path, max_trials=3).text)) == 3


def test_evaluations_are_charted_and_tabled_with_the_optimum_dashed(tmp_path: Path) -> None:
    seen = page(write_run(tmp_path, evaluations=[evaluation(), evaluation(label="before", optimum=None)]))
    text = " ".join(seen.text.split())
    assert "0.62 0.50 to 0.75 n 64" in text
    assert "best possible 0.25 0.50" in text
    assert "after, position 2: 0.62 (95 %: 0.50 to 0.75)" in text
    assert sum(" dashed" in value for tag, name, value in seen.attributes if (tag, name) == ("path", "class")) == 2


def test_every_metric_is_plotted_and_a_resumed_step_counts_once(tmp_path: Path) -> None:
    row = {"success/p1": 0.1, "success/p2": 0.2, "loss/kl": 1.0, "cut": 0.0, "odd": 2, "note": "text", "flag": True}
    rows = [{"step": 1} | row, {"step": 2} | row, {"step": 2} | row | {"success/p2": 0.9}]
    text = " ".join(page(write_run(tmp_path, metrics=rows)).text.split())
    assert "position 1 0.10 position 2 0.90" in text
    for title in ("Success by position", "Loss: kl", "Invalid and cut replies", "Odd"):
        assert title in text
    assert "Note" not in text
    assert "training steps 2" in text


def test_a_difference_marks_lines_and_words() -> None:
    rows = difference("same\nuse the red key\ngone", "same\nuse the blue key\n")
    assert [row.kind for row in rows] == ["same", "old", "old", "new"]
    assert [text for changed, text in rows[1].parts if changed] == ["red"]
    assert [text for changed, text in rows[3].parts if changed] == ["blue"]


@given(st.text(max_size=60), st.text(max_size=60))
def test_a_difference_holds_both_texts(old: str, new: str) -> None:
    rows = difference(old, new)
    for kind, text in (("old", old), ("new", new)):
        lines = ["".join(part for _, part in row.parts).split() for row in rows if row.kind in ("same", kind)]
        assert lines == [line.split() for line in text.splitlines()]
