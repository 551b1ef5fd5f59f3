"""Which functions are kernels: compiled with all that they call, once, and kept on disk, on the first call.

Their modules are imported for much besides, constants above all, and numba takes half a second to import and to fill:
it is imported where something is compiled (:mod:`ticdc_lab.codecs.kernel.making`), and the code that it made runs
without it (:mod:`ticdc_lab.codecs.kernel.native`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import update_wrapper
from threading import RLock
from typing import Any, TypeVar, cast

from ticdc_lab.codecs.kernel import native

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

_ONE_AT_A_TIME = RLock()
"""Held where numba is imported, and where code is loaded."""

_INTERPRETED = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")
"""Tests run the kernels so, over arrays that check every index."""


class _Lazy:
    """A function that numba has not seen yet, and sees when one that calls it is compiled."""

    __wrapped__: Callable[..., Any]
    __qualname__: str

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
        raise AssertionError("a part of a kernel is called by kernels only")

    def __reduce__(self) -> str:
        return self.__qualname__


class _Whole(_Lazy):
    """A function that Python calls."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function, "whole")
        self._loaded = dict[native.Form, native.Loaded]()

    def __call__(self, *given: Any) -> Any:
        form = native.form_of(given)
        run = self._loaded.get(form)
        if run is None:
            with _ONE_AT_A_TIME:
                run = self._loaded[form] = native.loaded(self.__wrapped__, form, self._compiled)
        return run(given)

    def _compiled(self, form: native.Form) -> native.MachineCode:
        from ticdc_lab.codecs.kernel import making

        return making.compiled(self._made(), form)


def kernel(function: Kernel) -> Kernel:
    """Compile a function that Python calls, and keep the machine code on disk."""
    return function if _INTERPRETED else cast(Kernel, _Whole(function))


def part(function: Kernel) -> Kernel:
    """Compile a function that only kernels call."""
    return function if _INTERPRETED else cast(Kernel, _Lazy(function, "lowered", inline=False))


def small_kernel(function: Kernel) -> Kernel:
    """A part that is better pasted into its callers than called."""
    return function if _INTERPRETED else cast(Kernel, _Lazy(function, "lowered", inline=True))


def in_llvm(function: Kernel) -> Kernel:
    """Take what has the function's name in :mod:`ticdc_lab.codecs.kernel.llvm` in its place."""
    return function if _INTERPRETED else cast(Kernel, _Lazy(function, "written"))
