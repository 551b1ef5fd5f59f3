"""The values of a panel's controls as a small JSON object, which can be handed to a colleague."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ipywidgets as widgets
import traitlets

from ticdc_lab.errors import TiCDCLabError

FORMAT = 1
"""Of the JSON object; raised when an old file could no longer be understood."""

_FIELDS = ("ticdc_lab", "format", "panel", "made_from", "value")
_NO_STATE = "Save one with the button `save` of a panel or `save all` of a workbench, or with its method save()."


class StateError(TiCDCLabError):
    """A saved state cannot be read, is of another panel, or has what the controls cannot."""


def state_of(name: str, made_from: Mapping[str, Any] | None, value: Any) -> dict[str, Any]:
    """Write a value down.

    ``name``: the panel's kind. ``made_from``: how the panel can be made again. ``value``: the frozen dataclass of the
    controls. Returns: ``ticdc_lab`` (version), ``format``, ``panel``, ``made_from`` and ``value``; as JSON has them.
    """
    made = None if made_from is None else dict(made_from)
    told = {"ticdc_lab": version("ticdc_lab"), "format": FORMAT, "panel": name, "made_from": made}
    return dict(json.loads(json.dumps({**told, "value": asdict(value)}, default=_plain)))


def read_state(state: Mapping[str, Any] | str | Path) -> dict[str, Any]:
    """Read a state, or the file it is in.

    Raises StateError: there is no such file, it is no state, or it is of another format.
    """
    if not isinstance(state, Mapping):
        path = Path(state)
        try:
            return checked(parsed(path.read_text(encoding="utf-8"), name=str(path)), str(path))
        except (OSError, UnicodeDecodeError) as error:
            raise StateError(
                f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.", hint=_NO_STATE
            ) from error
    return checked(dict(state), "the state")


def parsed(text: str, *, name: str) -> Any:
    """Read JSON; ``name`` is what an error calls it."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise StateError(f"{name} is no JSON: {error}.", hint=_NO_STATE) from error


def values_of(state: Mapping[str, Any], *, panel: str, view: type) -> dict[str, Any]:
    """Give a state's value for each field of a panel's value.

    Raises StateError: it is of another panel, is missing a field or has one too many.
    """
    if state["panel"] != panel:
        raise StateError(
            f"The state is of a panel `{state['panel']}`; expected `{panel}`.",
            hint="Open it in a panel of its kind: ticdc-lab open FILE",
        )
    told, names = state["value"], [f.name for f in fields(view)]
    later = {f.name: f.default for f in fields(view) if f.default is not MISSING}  # a state of before has none of it
    lacking, unknown = sorted(set(names) - set(told) - set(later)), sorted(set(told) - set(names))
    if lacking or unknown:
        wrong = [f"is missing {', '.join(lacking)}"] * bool(lacking)
        wrong += [f"has unknown {', '.join(unknown)}"] * bool(unknown)
        raise StateError(
            f"The state's value {' and '.join(wrong)}; expected {', '.join(names)}.",
            hint=f"It was saved by version {state['ticdc_lab']}, this is {version('ticdc_lab')}.",
        )
    return {name: frozen(told.get(name, later.get(name))) for name in names}


def unlike(saved: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> str:
    """Name what a panel is made from and the saved one was not; empty if it is the same.

    ``saved``, ``now``: ``made_from`` of the state and of the panel.
    """
    if saved is None or now is None:
        return ""
    plain = json.loads(json.dumps(dict(now), default=_plain))
    other = [name for name in plain if name in saved and saved[name] != plain[name]]
    return "; ".join(f"saved with {name} {saved[name]}, here it is {plain[name]}" for name in other)


def put(controls: Mapping[str, widgets.Widget], values: Mapping[str, Any]) -> None:
    """Give each control its value. Raises StateError: a control cannot have it; those before it have theirs."""
    for name, control in controls.items():
        wanted = frozen(values[name])
        try:
            control.value = wanted
        except (traitlets.TraitError, ValueError, TypeError, KeyError) as error:
            raise StateError(_misfit(name, control, wanted), hint=_MISFIT_HINT) from error
        if frozen(control.value) != wanted:
            raise StateError(_misfit(name, control, wanted), hint=_MISFIT_HINT)


_MISFIT_HINT = "The log or the model differs from the one that the state was saved with, or the file was changed."


def _misfit(name: str, control: widgets.Widget, wanted: Any) -> str:
    return f"`{name}` cannot be {json.dumps(wanted, default=_plain)}; expected {_expected(control)}."


def _expected(control: widgets.Widget) -> str:
    options = getattr(control, "options", None)
    if options:
        names = [json.dumps(o[1] if isinstance(o, tuple) else o, default=_plain) for o in options]
        return f"one of {', '.join(names[:12])}{' ..' if len(names) > 12 else ''}"
    if hasattr(control, "min"):
        return f"a number from {control.min:g} to {control.max:g}"
    return getattr(control, "expects", "text")


def checked(state: Any, name: str) -> dict[str, Any]:
    """Give a state that was parsed; ``name`` is what an error calls it.

    Raises StateError: it is no state, or of another format.
    """
    if not isinstance(state, dict) or not set(_FIELDS) <= set(state) or not isinstance(state["value"], dict):
        raise StateError(f"{name} is no state of a panel: expected {', '.join(_FIELDS)}.", hint=_NO_STATE)
    if not isinstance(state["made_from"], dict | None):
        raise StateError(f"{name}: made_from is neither an object nor null.", hint=_NO_STATE)
    if state["format"] != FORMAT:
        raise StateError(
            f"{name}: expected format {FORMAT}, found {json.dumps(state['format'])}.",
            hint=f"It was saved by ticdc_lab {state['ticdc_lab']}; open it with that version.",
        )
    return state


def frozen(value: Any) -> Any:
    """Lists as tuples, however deep: what JSON made of them, as views have them."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(frozen(v) for v in value)
    return value


def _plain(value: Any) -> Any:
    """Numbers of numpy as JSON has them."""
    return value.item() if hasattr(value, "item") else str(value)


def as_text(state: Mapping[str, Any]) -> str:
    """A state as a file has it."""
    return json.dumps(state, indent=1, ensure_ascii=False) + "\n"
