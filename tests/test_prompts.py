"""Prompts: styles, and strict reading of replies."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import skillrise
from skillrise.errors import InputError
from skillrise.prompts import BUILT_IN, STOP, parse, style
from skillrise.types import Role

KINDS = ("solve", "step", "curate", "curate_next", "reflect", "reflect_next")
ROLES: tuple[Role, ...] = ("solve", "curate", "reflect")
VALUES: dict[str, object] = {
    "rules": "RULES",
    "document": "DOCUMENT",
    "reflections": [(1, False, "FIRST"), (2, True, "SECOND")],
    "task": "TASK",
    "history": [("SEEN", "DONE"), ("SEEN2", None)],
    "observation": "OBSERVATION",
    "admissible": ["GO", "STAY"],
    "invalid": True,
    "won": False,
}


def say(name: str, kind: str, **changes: object) -> str:
    return style(name).render(kind, {**VALUES, **changes}).content


def own(folder: Path, **templates: str) -> Path:
    path = folder / "style.toml"
    lines = [f"{kind} = {templates.get(kind, repr('x'))}" for kind in KINDS if templates.get(kind) != ""]
    path.write_text("\n".join(lines), "utf-8")
    return path


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_styles_say_what_each_role_needs(name: str) -> None:
    solve = say(name, "solve")
    for word in ("DOCUMENT", "FIRST", "SECOND", "TASK", "SEEN", "DONE", "SEEN2", "OBSERVATION", "GO", "STAY"):
        assert word in solve
    assert "GO" not in say(name, "solve", admissible=None)
    assert "OBSERVATION" in say(name, "step")
    assert say(name, "step") != say(name, "step", invalid=False)  # told that the reply did not count
    for kind in ("curate", "reflect"):
        assert all(word in say(name, kind) for word in ("TASK", "SEEN", "DONE", "OBSERVATION"))
    for kind in ("curate", "curate_next", "reflect", "reflect_next"):
        assert say(name, kind) != say(name, kind, won=True)
    assert "DOCUMENT" in say(name, "curate")
    for kind in KINDS:
        text = say(name, kind, document="", reflections=[], history=[], admissible=None, rules="")
        assert text == text.strip()
        assert text


@pytest.mark.parametrize("name", [name for name in BUILT_IN if name != "brief"])
def test_the_styles_for_language_models_ask_for_the_tags_that_are_read(name: str) -> None:
    for kind, role in (
        ("solve", "solve"),
        ("curate", "curate"),
        ("curate_next", "curate"),
        ("reflect_next", "reflect"),
    ):
        assert STOP[role] in say(name, kind)  # type: ignore[index]
    assert "RULES" in say(name, "solve")


def test_zero_asks_for_the_action_alone_and_react_for_a_thought_before_it() -> None:
    assert "think" not in (say("zero", "solve") + say("zero", "step")).lower()
    for kind in ("solve", "step"):
        assert "Think:" in say("react", kind)
    assert parse("solve", "Think: a key may be in it.\n<action>open drawer 1</action>") == "open drawer 1"


def test_every_template_that_ships_is_a_built_in_style() -> None:
    folder = Path(skillrise.__file__).parent / "templates"
    assert {path.stem for path in folder.glob("*.toml")} == set(BUILT_IN)


def test_hostile_text_stays_as_it_is() -> None:
    text = "{{ 7 * 7 }} {% if won %} <b>&amp;</b> {{ document.__class__ }}"
    for kind in ("solve", "curate"):
        assert text in say("full", kind, document=text, observation=text, task=text)


def test_a_style_of_ones_own(tmp_path: Path) -> None:
    path = own(tmp_path, solve="'''\n{{ task }}: {{ observation }}\n'''")
    assert say(str(path), "solve") == "TASK: OBSERVATION"
    assert style(str(path)).render("step", VALUES).role == "user"


def test_a_style_of_ones_own_may_say_only_what_differs(tmp_path: Path) -> None:
    path = tmp_path / "style.toml"
    path.write_text("base = 'react'\nstep = '{{ observation }}!'")
    assert say(str(path), "step") == "OBSERVATION!"
    for kind in set(KINDS) - {"step"}:
        assert say(str(path), kind) == say("react", kind)
    for base in ("'mine'", f"'{path}'", "3", "['full']"):
        path = tmp_path / f"{len(base)}.toml"
        path.write_text(f"base = {base}")
        with pytest.raises(InputError, match=r"base = .* is no built-in style: use one of full"):
            style(str(path))


@pytest.mark.parametrize(
    ("templates", "word"),
    [
        ({"solve": ""}, "needs the keys"),
        ({"solve": "'x'\nsolved = 'x'"}, "needs the keys"),
        ({"solve": "'{{ nope }}'"}, "'solve' does not render"),
        ({"curate": "'{% if won %}'"}, "'curate' does not render"),
        ({"step": "'{{ 1 / 0 }}'"}, "step"),
        ({"step": "'{{ won + task }}'"}, "step"),
        ({"solve": "3"}, "solve"),
        ({"solve": "['x']"}, "solve"),
        ({"solve": "'x"}, "not valid TOML"),
    ],
)
def test_a_wrong_style_is_refused_by_name(tmp_path: Path, templates: dict[str, str], word: str) -> None:
    path = own(tmp_path, **templates)
    with pytest.raises(InputError, match=word) as caught:
        style(str(path))
    assert str(path) in str(caught.value)


def test_a_style_that_is_not_there_or_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'terse'.*full, brief"):
        style("terse")
    with pytest.raises(InputError, match="no file"):
        style(str(tmp_path / "none.toml"))
    (tmp_path / "latin.toml").write_bytes(b"solve = '\xe9'")
    with pytest.raises(InputError, match=r"latin\.toml"):
        style(str(tmp_path / "latin.toml"))


def test_templates_are_sandboxed(tmp_path: Path) -> None:
    path = own(tmp_path, solve='"{{ task.__class__.__mro__[1].__subclasses__() }}"')
    with pytest.raises(InputError, match="does not render"):
        style(str(path))


@pytest.mark.parametrize(
    ("role", "text", "said"),
    [
        ("solve", "<action>go</action>", "go"),
        ("solve", "I think.\n<action>\n go north \n</action>", "go north"),
        ("solve", "<action>go</action>.", "go"),  # the token that closes may hold more
        ("solve", "an <action> comes: <action>go</action>", "go"),
        ("solve", "<action>one</action><action>two</action>", "one"),
        ("solve", "go", None),
        ("solve", "<action>go", None),
        ("solve", "go</action>", None),
        ("solve", "</action><action>go</action>", None),
        ("solve", "<action> </action>", None),
        ("solve", "<skill>go</skill>", None),
        ("solve", "<ACTION>go</ACTION>", None),
        ("curate", "<skill>a\nb</skill>", "a\nb"),
        ("curate", "<skill></skill>", ""),
        ("curate", "", None),
        ("reflect", "<reflection>so</reflection>", "so"),
        ("reflect", "<reflection></reflection>", None),
    ],
)
def test_replies_are_read_strictly(role: Role, text: str, said: str | None) -> None:
    assert parse(role, text) == said


@given(st.sampled_from(ROLES), st.text(), st.text())
def test_what_is_put_between_tags_comes_out(role: Role, before: str, inner: str) -> None:
    close = STOP[role]
    start = close.replace("/", "")
    if close in before or close in inner or start in inner:
        return
    said = parse(role, f"{before}{start}{inner}{close}")
    assert said == (inner.strip() or ("" if role == "curate" else None))
    assert parse(role, f"{before}{start}{inner}") is None
