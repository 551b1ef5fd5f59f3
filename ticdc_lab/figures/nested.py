"""Settings of a figure as nested dicts, and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

_WITH_UNDERSCORE = {"paper_bgcolor", "plot_bgcolor"}
"""Names of plotly's that are one word; in any other an underscore leads into what is nested: ``title_text``."""

_WHOLE = {"meta", "template"}
"""What is replaced and not merged when it is set again."""


_PLAIN = {str, int, float, bool}


class Nested(dict[str, Any]):
    """Nested settings whose names are attributes, too; what is not set is None, as in plotly's own objects."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.get(name)

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = plain(value)


def plain(value: Any) -> Any:
    """Own the nested dicts of a value, without what is None; data is not copied."""
    if type(value) in _PLAIN:  # most of them
        return value
    if isinstance(value, Mapping):
        return Nested({k: plain(v) for k, v in value.items() if v is not None})
    if isinstance(value, list | tuple):
        return [plain(v) for v in value] if value and isinstance(value[0], Mapping) else value
    return value.to_numpy() if hasattr(value, "to_numpy") else value


def put(target: Nested, settings: Mapping[str, Any]) -> None:
    """Merge settings into others; a name with an underscore leads into what is nested, None takes away."""
    for name, value in settings.items():
        head, _, rest = (name, "", "") if name in _WITH_UNDERSCORE else name.partition("_")
        if rest:
            put(target.setdefault(head, Nested()), {rest: value})
        elif value is None:
            target.pop(head, None)
        elif isinstance(value, Mapping) and isinstance(target.get(head), Nested) and head not in _WHOLE:
            put(target[head], value)
        else:
            target[head] = value if head == "template" else plain(value)  # a template is shared


def as_json(value: Any) -> str:
    """Give settings as JSON; arrays as lists, what is no number as null."""
    return orjson.dumps(value, default=_as_list, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS).decode()


def _as_list(value: Any) -> Any:
    """What JSON has no form for: arrays of objects or strides, sets of numbers, a missing value."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return None if type(value).__name__ in ("NAType", "NaTType") else list(value)
