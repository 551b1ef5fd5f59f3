"""Which functions are kernels: compiled with all that they call, once, into a cache, on the first call.

Their modules are imported for much besides, constants above all, and numba takes half a second to import: it is
imported with the first call (:mod:`ticdc_lab.codecs.kernel.making`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from threading import RLock
from typing import Any, TypeVar, cast

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

_ONE_AT_A_TIME = RLock()
"""Held where numba is imported and its settings are ours for a moment."""


class _Lazy:
    """A function that numba has not seen yet; once it has, it hands all to numba's."""

    def __init__(self, function: Callable[..., Any], how: str, **options: bool) -> None:
        update_wrapper(self, function)
        self._how, self._options, self._found = how, options, None

    def _made(self) -> Any:
        """What numba makes of it, once, whichever thread asks first."""
        if self._found is None:
            with _ONE_AT_A_TIME:
                from ticdc_lab.codecs.kernel import making

                self._found = self._found or getattr(making, self._how)(self.__wrapped__, **self._options)
        return self._found

    @property
    def _numba_type_(self) -> Any:
        """Numba asks for it where a kernel calls this one."""
        return self._made()._numba_type_

    def __call__(self, *given: Any) -> Any:
        return self._made()(*given)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._made(), name)

    def __reduce__(self) -> str:
        return self.__qualname__


def kernel(function: Kernel) -> Kernel:
    """Compile a function that Python calls, and keep the machine code on disk."""
    return cast(Kernel, _Lazy(function, "whole"))


def part(function: Kernel) -> Kernel:
    """Compile a function that only kernels call."""
    return cast(Kernel, _Lazy(function, "lowered", inline=False))


def small_kernel(function: Kernel) -> Kernel:
    """A part that is better pasted into its callers than called."""
    return cast(Kernel, _Lazy(function, "lowered", inline=True))
