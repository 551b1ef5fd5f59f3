"""Scenario files: what is there, what happens to it, and what must then be so.

::

    model: scheduler
    until: 20s
    cluster: {captures: 3, tables: 8}
    events:
      - {at: 5s, crash: capture-2}
    assert:
      - {within: 10s, after: crash capture-2, holds: every table replicates}
      - {always: no double write}

``data/scenarios`` has a dozen. Every mistake is a :class:`ticdc_lab.errors.ScenarioError` with file and line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ticdc_lab.errors import ScenarioError
from ticdc_lab.errors.bounded import read_bounded
from ticdc_lab.simulate.assertions import Assertion, Claim, Counted, Settling, Times, assertion
from ticdc_lab.simulate.planned import (
    NetworkSettings,
    NewNode,
    Planned,
    RandomFaults,
    added,
    named,
    planned,
    require_there,
)
from ticdc_lab.simulate.reading import (
    DURATION,
    Names,
    Reader,
    Value,
    json_record,
    parsed,
    read_record,
    replace_value,
    yaml_name,
)


@dataclass(frozen=True, slots=True)
class Model:
    """What a model adds to the reading of a scenario."""

    name: str  # what scenarios and commands call it
    variants: tuple[str, ...]
    cluster: Callable[[Value], Any]  # reads the section; ``tables`` gives the ids of those in it
    tables: Callable[[Any], frozenset[int]]
    settings: type
    unsettled: tuple[str, ...]  # fields of the settings that other sections give
    choices: Mapping[str, tuple[str, ...]]  # allowed values of fields whose type is just a text
    events: Mapping[str, type]  # kinds of events by their names, the faults that every model knows among them
    random: tuple[str, ...]  # those that can come at random
    messages: Callable[[str], frozenset[str]]  # names of a variant's messages
    # Read a sentence, and what can be counted
    claim: Callable[[Value, Names, Collection[str]], Claim]
    measure: Callable[[Value, Names], Counted]
    facts: Callable[[Any, Iterable[Planned]], Any]  # what is known before a run begins
    invariants: tuple[str, ...]
    play: Callable[..., Any]  # runs a scenario and judges it, as :func:`ticdc_lab.simulate.scheduler.model.play`
    # What runs of many seeds are compared by: all has its place, and none has more than one too many
    steady: Claim
    balanced: Claim
    # Reads what clients do; None where a model has no load but its events
    load: Callable[[Value, Names], Any] | None = None
    # By variant what others have a use for and it has none, each path of the file as a pattern, with the reason
    refused: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def model_named(name: str) -> Model:
    module, _, model = MODELS[name].partition(":")
    found: Model = getattr(import_module(module), model or "MODEL")
    return found


MODELS = {
    "scheduler": "ticdc_lab.simulate.scheduler.model",
    "pipeline": "ticdc_lab.simulate.pipeline.model",
    "changefeeds": "ticdc_lab.simulate.pipeline.model:CHANGEFEEDS",
    "ddl-service": "ticdc_lab.simulate.ddl_service.scenario",
    "pd": "ticdc_lab.simulate.pd.world.model",
}
"""Modules by the names of the models; each is imported when it is asked for, and has a ``MODEL``, or what is named."""


_AS_IT_IS: Mapping[str, str] = MappingProxyType({})
STEP_LIMIT, UNTIL_US = 1_000_000, 30_000_000
_FIELDS = (
    "name", "model", "variant", "seed", "until", "settle", "step_limit", "cluster", "load", "settings", "network",
    "events", "assert",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario, checked."""

    file: str  # where it comes from, as errors and commands name it
    text: str = field(repr=False)
    name: str
    model: Model = field(repr=False)
    variant: str
    seed: int
    until_us: int  # when a run ends, µs of virtual time; one of more than ``step_limit`` steps stops before
    step_limit: int
    # ``cluster``, ``settings``, ``load``: of the model; ``load`` is what clients do, None if the file has nothing of it
    cluster: Any
    settings: Any
    network: NetworkSettings
    events: tuple[Planned, ...]  # by time; at one moment in the file's order
    random: tuple[RandomFaults, ...]
    assertions: tuple[Assertion, ...]
    faults_end_us: int | None = None  # when the last event is over; None where nothing happens
    changes: tuple[tuple[str, str], ...] = ()  # what was asked for instead of the file's
    load: Any = None
    settling: Settling | None = None  # when a run may end before ``until_us``; None for never

    @property
    def joining(self) -> tuple[str, ...]:
        """Nodes that come later."""
        return tuple(name for _, name in named(self.events, (NewNode,)))

    @property
    def everyone(self) -> tuple[str, ...]:
        """All nodes, in the order in which faults go through them."""
        found: tuple[str, ...] = self.cluster.everyone(self.joining)
        return found

    def __reduce__(self) -> tuple[Any, tuple[str, str, dict[str, str]]]:
        """Travel as text: claims hold functions."""
        return scenario_from_text, (self.text, self.file, dict(self.changes))

    def changed(self, changes: Mapping[str, str]) -> Scenario:
        """Give the scenario with some values of the file replaced: ``{"settings.tick": "200ms", "variant": "v3"}``."""
        return scenario_from_text(self.text, self.file, {**dict(self.changes), **changes})


def read_scenario(path: str | Path, changes: Mapping[str, str] = _AS_IT_IS) -> Scenario:
    """Read a scenario file.

    Parameters
    ----------
    path
        YAML.
    changes
        Values that are taken instead of the file's, by where they stand: ``settings.tick``, ``network.loss``.

    Raises
    ------
    ScenarioError
        It cannot be read, is no YAML, or holds what no run can do; with the line.
    """
    try:
        text = read_bounded(path)
    except (OSError, ValueError) as error:
        raise ScenarioError(
            f"{path}: the scenario cannot be read: {getattr(error, 'strerror', None) or error}; expected a YAML file.",
            hint="List the samples: ls data/scenarios",
        ) from error
    return scenario_from_text(text, str(path), changes)


def scenario_from_text(text: str, file: str = "scenario", changes: Mapping[str, str] = _AS_IT_IS) -> Scenario:
    """As :func:`read_scenario`, from the text of a file."""
    top = parsed(text, file)
    for path, new in changes.items():
        replace_value(top, path, new)
    given = top.fields(_FIELDS, required=["model", "cluster"])
    model = model_named(given["model"].choice(MODELS, "a model"))
    variant = given["variant"].choice(model.variants, "a variant") if "variant" in given else model.variants[0]
    # What would have no effect is not taken.
    whose = f"the model {model.name}" if len(model.variants) == 1 else f"the variant {variant}"
    refused = model.refused.get(variant, {})
    for value in top.within() if refused else ():
        for pattern, why in refused.items():
            if re.fullmatch(pattern, value.path):
                name = value.path.rpartition(".")[2]
                raise value.wrong(f"no `{name}` for {whose}: {why}", found=name)
    until_us = given["until"].duration_us() if "until" in given else UNTIL_US
    if until_us == 0:
        raise given["until"].wrong("a time above 0")
    cluster = model.cluster(given["cluster"])
    happens = given["events"].items() if _there(given, "events") else []
    timed = [e for e in happens if not _is_random(e)]
    later = added(timed, model.events)
    tables = model.tables(cluster) | later.tables
    may_add = "add_table" in model.events
    names = Names(cluster.nodes | later.nodes, tables, model.messages(variant), later.changefeeds, may_add, cluster)
    events = [planned(e, model.events, names, until_us) for e in timed]
    require_there(events, cluster.nodes | model.tables(cluster), file)
    random = [_random(e, model, until_us) for e in happens if _is_random(e)]
    ends = [e.ends_us for e in events] + [r.until_us for r in random]
    times = Times(events, until_us, max(ends, default=None))
    clients = None
    if _there(given, "load"):
        if model.load is None:
            raise given["load"].wrong("no load: the tables of this model have their traffic in `cluster`")
        clients = model.load(given["load"], names)
    return Scenario(
        file=file,
        text=text,
        name=given["name"].text() if "name" in given else Path(file).stem,
        model=model,
        variant=variant,
        seed=given["seed"].integer() if "seed" in given else 0,
        until_us=until_us,
        step_limit=given["step_limit"].integer(least=1) if "step_limit" in given else STEP_LIMIT,
        cluster=cluster,
        settings=read_record(
            given.get("settings"), model.settings, Reader(without=model.unsettled, choices=model.choices)
        ),
        network=read_record(given.get("network"), NetworkSettings, Reader(names)),
        events=tuple(sorted(events, key=lambda e: e.at_us)),
        random=tuple(random),
        assertions=tuple(
            assertion(
                value, times, lambda v: model.claim(v, names, model.invariants), lambda v: model.measure(v, names)
            )
            for value in (given["assert"].items() if _there(given, "assert") else ())
        ),
        faults_end_us=times.faults_end_us,
        changes=tuple(changes.items()),
        load=clients,
        settling=_settling(given, times, clients),
    )


def schema(name: str) -> dict[str, Any]:
    """Give the JSON schema of a model's scenario files, with which editors complete and check them.

    Events are the rows of the model's table. Names of nodes and tables, and what holds only together, are checked where
    a file is read.

    Examples
    --------
    >>> events = schema("pipeline")["properties"]["events"]["items"]["anyOf"]
    >>> [event["required"] for event in events if "split" in event.get("properties", {})]
    [['at', 'split']]
    """
    model = model_named(name)
    text, events = {"type": "string"}, [_event_schema(kind, what) for kind, what in model.events.items()]
    return {
        "$schema": "http://json-schema.org/draft-07/schema#", "title": f"A scenario of {name}", "type": "object",
        "additionalProperties": False, "required": ["model", "cluster"],
        "properties": {given: {} for given in _FIELDS} | {
            "model": {"const": name}, "name": text, "variant": {"enum": [*model.variants]},
            "seed": {"type": "integer"}, "until": DURATION, "settle": DURATION,
            "step_limit": {"type": "integer", "minimum": 1},
            "settings": json_record(model.settings, Reader(without=model.unsettled, choices=model.choices)),
            "network": json_record(NetworkSettings, Reader()),
            "events": {"type": ["array", "null"], "items": {"anyOf": [*events, {"required": ["random"]}]}},
        },
    }  # fmt: skip


def _event_schema(kind: str, what: type) -> dict[str, Any]:
    """Give the schema of an event: the value beside its name is its first field, others are beside it."""
    found = json_record(what, Reader())
    main = next((yaml_name(f.name) for f in fields(what)), None)
    own = found["properties"]
    value = own.pop(main) if main else {"type": "null"}
    needed = [kind, *(name for name in found["required"] if name != main)]
    properties = {"at": DURATION, "name": {"type": "string"}, kind: value, **own}
    if main and main not in found["required"]:
        properties[kind] = {"anyOf": [value, {"type": "null"}]}
    return found | {"description": what.__doc__, "properties": properties, "required": ["at", *needed]}


def _there(given: dict[str, Value], name: str) -> bool:
    return name in given and not given[name].is_empty


def _settling(given: dict[str, Value], times: Times, load: Any) -> Settling | None:
    """Read ``settle: 5s``: when nothing happens any more, users and clients have nothing to do either."""
    if "settle" not in given:
        return None
    for_us = given["settle"].duration_us()
    if for_us == 0:
        raise given["settle"].wrong("a time above 0")
    ends = [times.faults_end_us or 0]
    if load is not None:
        if load.until_us is None:
            raise given["settle"].wrong("no `settle` beside a load without `until`: it may never rest")
        ends += [load.until_us, *(t.at_us + t.hold_us for t in getattr(load, "transactions", ()))]
    return Settling(max(ends), for_us)


def _is_random(event: Value) -> bool:
    return any(key.text() == "random" for key, _ in event.entries())


def _random(event: Value, model: Model, until_us: int) -> RandomFaults:
    """Read ``{random: {faults: [crash, partition], every: 500ms, until: 20s}}``."""
    value = event.fields({"random"})["random"]
    given = value.fields({"faults", "every", "from", "until"}, required=["faults", "every"])
    faults = tuple(f.choice(model.random, "a fault that can come at random") for f in given["faults"].items())
    if not faults:
        raise given["faults"].wrong("at least one fault", found="none")
    every_us = given["every"].duration_us()
    if every_us == 0:
        raise given["every"].wrong("a time above 0")
    begin_us = given["from"].duration_us() if "from" in given else 0
    end_us = given["until"].duration_us() if "until" in given else until_us
    if not begin_us < end_us <= until_us:
        last = given.get("until", given.get("from", value))
        raise last.wrong("random faults that begin before they end, within the run")
    return RandomFaults(faults, every_us, end_us, begin_us, event.line)
