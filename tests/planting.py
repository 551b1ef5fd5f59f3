"""What is put in the place of a rule, for a while: the package itself knows no bug."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

Patch = tuple[Any, str, Any]
Bugs = Mapping[str, Callable[[], list[Patch]]]
"""By name: what is put where, as (module or class, attribute, instead)."""


@contextmanager
def planted_in(known: Bugs, *bugs: str) -> Iterator[None]:
    """Let some bugs be there."""
    with ExitStack() as stack:
        for bug in bugs:
            for place, name, instead in known[bug]():
                stack.enter_context(patch.object(place, name, instead))
        yield
