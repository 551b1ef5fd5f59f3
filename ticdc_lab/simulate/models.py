"""The models that scenarios can be of."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from ticdc_lab.simulate.assertions import Claim, Counted
from ticdc_lab.simulate.planned import Planned
from ticdc_lab.simulate.planned_reading import Names
from ticdc_lab.simulate.scenario_yaml import Value


@dataclass(frozen=True, slots=True)
class Model:
    """What a model adds to the reading of a scenario.

    Attributes
    ----------
    name
        What scenarios and commands call it.
    cluster
        Reads the section; ``tables`` gives the ids of those in it.
    unsettled
        Fields of the settings that other sections give.
    choices
        What fields may be whose type says no more than a text.
    events
        Kinds of events by their names, the faults that every model knows among them.
    random
        Those that can come at random.
    messages
        Names of a variant's messages.
    claim, measure
        Read a sentence, and what can be counted.
    facts
        What is known before a run begins.
    figures
        What ``plot`` may name.
    play
        Runs a scenario and judges it, as :func:`ticdc_lab.simulate.scheduler.play.play`.
    steady, balanced
        What runs of many seeds are compared by: all has its place, and nobody has more than one too many.
    load
        Reads what clients do; None where a model has no load but its events.
    refused
        By variant what others have a use for and it has none, each path of the file as a pattern, with the reason.
    """

    name: str
    variants: tuple[str, ...]
    cluster: Callable[[Value], Any]
    tables: Callable[[Any], frozenset[int]]
    settings: type
    unsettled: tuple[str, ...]
    choices: Mapping[str, tuple[str, ...]]
    events: Mapping[str, type]
    random: tuple[str, ...]
    messages: Callable[[str], frozenset[str]]
    claim: Callable[[Value, Names, Collection[str]], Claim]
    measure: Callable[[Value, Names], Counted]
    facts: Callable[[Any, Iterable[Planned]], Any]
    invariants: tuple[str, ...]
    figures: frozenset[str]
    play: Callable[..., Any]
    steady: Claim
    balanced: Claim
    load: Callable[[Value, Names], Any] | None = None
    refused: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def model_of(value: Value) -> Model:
    """Read the name of a model."""
    name = value.choice(MODELS, "a model")
    found: Model = import_module(MODELS[name]).MODEL
    return found


MODELS = {
    "scheduler": "ticdc_lab.simulate.scheduler.model",
    "pipeline": "ticdc_lab.simulate.pipeline.model",
    "changefeeds": "ticdc_lab.simulate.pipeline.changefeeds.scenario",
    "ddl-service": "ticdc_lab.simulate.ddl_service.model",
    "pd": "ticdc_lab.simulate.pd.world.model",
}
"""Modules by the names of the models; each is imported when it is asked for, and has a ``MODEL``."""
