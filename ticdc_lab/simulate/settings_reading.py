"""The ``settings`` of a scenario file, read by the fields of the model's own dataclass: nothing is named twice."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from fractions import Fraction
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ticdc_lab.errors import TiCDCLabError
from ticdc_lab.simulate.scenario_yaml import Value

T = TypeVar("T")


def settings(value: Value | None, kind: type[T]) -> T:
    """Give the settings; what the file does not name keeps its default.

    A field that ends in ``_us`` is a duration and stands in the file without this ending; one that is a dataclass
    itself is a section.
    """
    if value is None or value.is_empty:
        return kind()
    hints = get_type_hints(kind)
    names = {f.name.removesuffix("_us"): f.name for f in fields(kind) if f.init}  # type: ignore[arg-type]
    given = value.fields(names)
    found = {names[k]: _setting(v, hints[names[k]], duration=names[k].endswith("_us")) for k, v in given.items()}
    try:
        return kind(**found)
    except (ValueError, TiCDCLabError) as error:
        raise value.wrong(f"settings that go together ({error})") from error


def _setting(value: Value, kind: Any, *, duration: bool) -> Any:
    if get_origin(kind) in (Union, UnionType):
        if value.is_empty or value.text() == "none":
            return None
        kind = next(k for k in get_args(kind) if k is not NoneType)
    if duration:
        return value.duration_us()
    if get_origin(kind) is Literal:
        return value.choice(get_args(kind), "one of the known settings")
    if is_dataclass(kind) and isinstance(kind, type):
        return settings(value, kind)
    return _PLAIN[kind](value)


_PLAIN: dict[Any, Any] = {
    bool: Value.flag,
    int: Value.integer,
    str: Value.text,
    float: lambda value: float(value.number()),
    Fraction: Value.number,
}
