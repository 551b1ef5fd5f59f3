"""The ``settings`` of a scenario file, read by the fields of the model's own dataclass: nothing is named twice."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass
from fractions import Fraction
from types import MappingProxyType, NoneType, SimpleNamespace, UnionType
from typing import Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from ticdc_lab.errors import TiCDCLabError
from ticdc_lab.simulate.scenario_yaml import Value

T = TypeVar("T")
_NONE: Mapping[str, tuple[str, ...]] = MappingProxyType({})


Choices: TypeAlias = Mapping[str, tuple[str, ...]]


def settings(value: Value | None, kind: type[T], *, without: Collection[str] = (), choices: Choices = _NONE) -> T:
    """Give the settings; what the file does not name keeps its default.

    A field that ends in ``_us`` is a duration and stands in the file without this ending; one that is a dataclass
    itself is a section. Fields ``without`` are not settings, those in ``choices`` are one of some texts.
    """
    if value is None or value.is_empty:
        return kind()
    names = {
        f.name.removesuffix("_us"): f.name
        for f in fields(kind)  # type: ignore[arg-type]
        if f.init and f.name not in without
    }
    hints = _hints(kind, set(names.values()))
    found: dict[str, Any] = {}
    for key, one in value.fields(names).items():
        name = names[key]
        if name in choices and get_origin(hints[name]) is not frozenset:
            found[name] = one.choice(choices[name], "one of the known settings")
        elif is_dataclass(hints[name]):
            found[name] = settings(one, hints[name], without=without, choices=choices)
        else:
            found[name] = _setting(one, hints[name], choices.get(name, ()), duration=name.endswith("_us"))
    try:
        return kind(**found)
    except (ValueError, TiCDCLabError) as error:
        raise value.wrong(f"settings that go together ({error})") from error


def _hints(kind: type, names: Collection[str]) -> dict[str, Any]:
    """The types of some fields; the others may speak of names that are not known here."""
    some = SimpleNamespace(__annotations__={f.name: f.type for f in fields(kind) if f.name in names})
    return get_type_hints(some, vars(sys.modules[kind.__module__]))


def _setting(value: Value, kind: Any, among: Collection[str] = (), *, duration: bool) -> Any:
    if get_origin(kind) in (Union, UnionType):
        if value.is_empty or value.text() == "none":
            return None
        kind = next(k for k in get_args(kind) if k is not NoneType)
    if duration:
        return value.duration_us()
    if get_origin(kind) is frozenset:
        return frozenset(one.choice(among, "one of the known settings") for one in value.items())
    if get_origin(kind) is Literal:
        return value.choice(get_args(kind), "one of the known settings")
    return _PLAIN[kind](value)


_PLAIN: dict[Any, Any] = {
    bool: Value.flag,
    int: Value.integer,
    str: Value.text,
    float: lambda value: float(value.number()),
    Fraction: Value.number,
}
