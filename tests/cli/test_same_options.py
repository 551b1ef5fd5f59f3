"""A question has the same options, by the same names and with the same defaults, as command and as method."""

from __future__ import annotations

import inspect
from typing import Any

import click
import pytest

import ticdc_lab
from ticdc_lab.cli import main
from ticdc_lab.cli.layout import EngineOption, SourceOption
from ticdc_lab.log import Log

_ALIKE = (
    "watermarks", "why", "transactions", "audit", "dispatch", "advise", "expand", "table", "compare", "consume",
    "produce",
)  # fmt: skip
METHODS = {name: getattr(Log, name) for name in _ALIKE} | {"consumer": Log.consumers, "survey": ticdc_lab.survey}
"""Command to method."""

OF_ALL = {"source", "as_json", "debug", "help", "tables", "first", "last"}
"""Arguments of :func:`ticdc_lab.open`, and how it is printed."""

ONLY_A_COMMAND = {
    "audit": {"messages_of"},  # Log.finding
    "advise": {"out", "reasons"},  # the changefeed file and all reasons: answer.values["dispatchers"], ["tables"]
    "expand": {"reasons"},  # the findings of each part: answer.values["findings"]
    # ticdc_lab.watch.comparing.WatchedComparison
    "compare": {"growing", "state", "once", "memory", "listen", "token_file"},
    "produce": {"out_kafka_config"},
    "consumer": {"per_second", "speed", "pause", "processes", "crash", "write_ms"},  # listeners=Listeners(..)
}
ONLY_A_METHOD = {
    "consume": {"said"},  # a command shows it
    "produce": {"options"},  # a command reads them from a file
    "audit": {"most", "messages"},  # a command prints all findings
    "advise": {"tables"},  # of the answer; a command has the same name for a sample elsewhere
    "consumer": {"listeners"},
    "compare": {"how"},  # options of the source
    "survey": {"spark", "how"},
}


def options(command: click.Command) -> dict[str, Any]:
    """A command's own parameters by name, with their defaults as it gets them."""
    own = [
        p for p in command.params
        if not isinstance(p, SourceOption | EngineOption) and p.name not in OF_ALL and getattr(p, "expose_value", True)
    ]  # fmt: skip
    context = click.Context(command)
    return {str(p.name): inspect.Parameter.empty if p.required else default_of(p, context) for p in own}


def default_of(option: click.Parameter, context: click.Context) -> Any:
    """What the command gets where nothing is given."""
    value = option.process_value(context, option.consume_value(context, {})[0])
    return None if getattr(value, "name", "") == "UNSET" else value  # as click hands it over


def parameters(method: Any) -> dict[str, Any]:
    """A method's parameters, with their defaults."""
    found = inspect.signature(method).parameters
    return {n: p.default for n, p in found.items() if n not in ("self", "source", "engine")}


def as_given(default: Any) -> Any:
    """A list of numbers as it is written on a command line; nothing given, as one of no entries."""
    if isinstance(default, tuple) and not default:
        return None
    return default


@pytest.mark.parametrize("name", METHODS)
def test_a_command_and_its_method_have_the_same_options(name: str) -> None:
    """Except for those that are named here, each with the reason."""
    told, taken = options(main.commands[name]), parameters(METHODS[name])
    told = {n: v for n, v in told.items() if n not in ONLY_A_COMMAND.get(name, ())}
    taken = {n: v for n, v in taken.items() if n not in ONLY_A_METHOD.get(name, ())}
    assert set(told) - {"other"} <= set(taken), "the command has options that the method does not"
    assert set(taken) <= set(told) | {"other"}, "the method has options that the command does not"
    for option, default in taken.items():
        if default is inspect.Parameter.empty or told[option] is inspect.Parameter.empty:
            continue  # one of both must be given: a command writes what a method may keep
        said = told[option]
        if option == "partitions" and isinstance(said, str):
            said = tuple(int(n) for n in said.split(","))
        assert as_given(said) == as_given(default), option


def test_an_option_with_another_default_is_seen() -> None:
    """The check above compares what a command really gets."""
    assert options(main.commands["why"])["stall_s"] is None is parameters(Log.why)["stall_s"]
    planted = click.Command("why", params=[click.Option(["--stall", "stall_s"], default=61.0)])
    assert options(planted) == {"stall_s": 61.0}
