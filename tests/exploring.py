"""Explorations: a few seeds in each run of the suite, the others in a soak."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from _pytest.mark.structures import ParameterSet


def seeds(these: Iterable[int], of: Iterable[int]) -> list[int | ParameterSet]:
    """Every seed ``of`` an exploration; those that are not among ``these`` are left to the soak."""
    suite, every = set(these), list(of)
    assert suite <= set(every)
    return [n if n in suite else pytest.param(n, marks=pytest.mark.soak) for n in every]
