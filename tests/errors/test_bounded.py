"""Texts of settings that would cost a parser more than any file of this package's kinds needs."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ticdc_lab.errors import DispatchError, ScenarioError, SourceError
from ticdc_lab.errors.bounded import LIMITS_VARIABLE, BoundedLoader, TextLimits, parse_json, parse_toml, read_bounded
from ticdc_lab.report.runs import read_runs
from ticdc_lab.settings.file import read_file
from ticdc_lab.simulate.scenario import read_scenario, scenario_from_text

LAUGHS = "a: &a [x, x]\n" + "".join(f"{n}: &{n} [{f'*{p}, ' * 9}]\n" for p, n in zip("abcdef", "bcdefg", strict=True))
YAML = {
    "many values": ("- a: 1\n" * 20_000, "more than 20,000 values"),
    "values that aliases repeat": (LAUGHS, "more than 20,000 values"),
    "deep": ("[" * 5_000, "more than 64 deep"),
    "a list within itself": ("a: &a [*a]", "contains itself"),
    "large": ("a: " + "x" * 1_000_000, "more than 1,000,000 bytes"),
}
TOML = {
    "a key of many parts": (".".join("a" * 20_000) + " = 1", "more than 64 parts in line 1"),
    "a table of many parts": ("x = 1\n[" + ".".join("a" * 20_000) + "]", "more than 64 parts in line 2"),
    "a key of many parts in a table": ("x = {" + ".".join(['"a"'] * 100) + " = 1}", "more than 64 parts"),
    "deep": ("a = " + "[" * 5_000, "without end"),
    "a long number": ("a = " + "9" * 5_000, "thousands of digits"),
    "large": ("#" * 1_000_001, "more than 1,000,000 bytes"),
}


@pytest.mark.parametrize("what", YAML)
def test_yaml_over_a_limit_is_refused_before_it_is_built(what: str) -> None:
    """Each names the limit; a scenario's error names its file and line besides."""
    text, says = YAML[what]
    with pytest.raises((yaml.YAMLError, ValueError), match=says):
        yaml.load(text, Loader=BoundedLoader)
    with pytest.raises(ScenarioError, match=rf"^s\.yaml:\d+: .*{says}"):
        scenario_from_text(text, "s.yaml")


@pytest.mark.parametrize("what", TOML)
def test_toml_over_a_limit_is_refused_before_it_is_built(what: str) -> None:
    """Each names the limit."""
    text, says = TOML[what]
    with pytest.raises(ValueError, match=says):
        parse_toml(text)


@pytest.mark.parametrize(("text", "says"), [
    ('{"a": ' + "9" * 5_000 + "}", "a number of thousands of digits"),
    ("[" * 100_000, "lists within lists without end"),
    (f'"{"x" * 1_000_000}"', "more than 1,000,000 bytes"), ('{"a": ]', "Expecting value"),
])  # fmt: skip
def test_json_over_a_limit_is_said_in_words(tmp_path: Path, text: str, says: str) -> None:
    """No one reads of recursion, or of a function of Python's that raises a limit."""
    with pytest.raises(ValueError, match=says):
        parse_json(text)
    (tmp_path / "c.json").write_text("{" + text)
    with pytest.raises(DispatchError) as refused:
        read_file(tmp_path / "c.json")
    assert not any(word in str(refused.value) for word in ("recursion", "sys."))


def test_ordinary_texts_are_read_as_the_plain_parsers_read_them() -> None:
    """Aliases, sections and dotted keys are no fault; a text of dots in quotes is no key."""
    text = "a: &a {b: [1, 2]}\nc: [*a, *a]\nd: null\n"
    assert yaml.load(text, Loader=BoundedLoader) == yaml.safe_load(text)
    assert parse_toml(f'[a.b]\nc.d = 1\ne = "{"x." * 500}"') == {"a": {"b": {"c": {"d": 1}, "e": "x." * 500}}}


@pytest.mark.parametrize("number", ["9" * 5_000, "1e99999999", "1e-99999999", "0." + "1" * 5_000, "9" * 5_000 + "s"])
def test_a_number_without_end_is_a_sentence(number: str) -> None:
    """Where a whole number, a share or a duration is expected."""
    text = Path("data/scenarios/scheduler/ddl-barrier.yaml").read_text(encoding="utf-8")
    for path in ("settings.tick", "network.loss", "cluster.captures"):
        with pytest.raises(ScenarioError, match="expected"):
            scenario_from_text(text, "s.yaml", {path: number})


def test_limits_can_be_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the variable that each refusal names; another word in it is refused."""
    file = tmp_path / "runs.yaml"
    file.write_text("x" * 1_000_001, encoding="utf-8")
    for read in (read_runs, read_scenario):
        with pytest.raises((SourceError, ScenarioError), match=f"{LIMITS_VARIABLE}=bytes=N"):
            read(file)
    monkeypatch.setenv(LIMITS_VARIABLE, "bytes=2000000,depth=200")
    assert len(read_bounded(file)) == 1_000_001
    assert yaml.load("[" * 100 + "]" * 100, Loader=BoundedLoader)
    monkeypatch.setenv(LIMITS_VARIABLE, "colour=3")
    with pytest.raises(ValueError, match="expected one of bytes, depth, values"):
        TextLimits.in_force()
