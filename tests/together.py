"""Hundreds of cases in one test, where a test of its own would take longer than the case."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import pytest


def together(names: str | Sequence[str], cases: Sequence[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """As ``pytest.mark.parametrize``, in one test: every case runs, and each that fails is listed with its values."""
    named = [names] if isinstance(names, str) else list(names)

    def of(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def whole(**fixtures: Any) -> None:
            wrong: list[str] = []
            for case in cases:
                values = dict(zip(named, [case] if isinstance(names, str) else case, strict=True))
                try:
                    test(**values, **fixtures)
                except (Exception, pytest.fail.Exception) as error:  # the latter is the one of `raises`
                    wrong.append(f"{values}: {type(error).__name__}: {error}")
            assert cases and not wrong, f"{len(wrong)} of {len(cases)} cases:\n" + "\n".join(wrong)

        own = inspect.signature(test).parameters.values()
        whole.__signature__ = inspect.Signature([p for p in own if p.name not in named])  # type: ignore[attr-defined]
        return whole

    return of
