"""What is given to numba, which this module imports, and what it makes: :mod:`ticdc_lab.codecs.kernel.jit` asks for it.

numba by itself optimises and generates code for every function with everything below it, again at each level of calls:
eighty seconds of what only the last level is used of. Here a function that only kernels call is a *part*: typed and
lowered, and no more; the kernel that Python calls links, optimises and keeps all its parts together.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import numba
from numba.core import types
from numba.core.caching import UserProvidedCacheLocator
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.types.misc import unliteral

from ticdc_lab.codecs.kernel.cache import folder

_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "_nrt": False,  # numba's runtime would count references of arrays, which costs more than the work itself
}


class _Whole(JITCodeLibrary):  # type: ignore[misc]  # numba has no types
    """A kernel's code: it links the parts that its parts call, too."""

    def finalize(self) -> None:
        """Callers first: LLVM takes a function in only where one that is there already calls it."""
        self._linking_libraries = _callees(self)[:-1][::-1]
        super().finalize()


def _callees(library: Any, done: list[Any] | None = None) -> list[Any]:
    """All that a kernel or part calls, each before what calls it; itself last."""
    found = [] if done is None else done
    for called in library._linking_libraries if isinstance(library, _Whole | _Part) else ():
        if called not in found:
            _callees(called, found)
    found.append(library)
    return found


class _Part(JITCodeLibrary):  # type: ignore[misc]
    """A part's code: its own, which others link; it is never run from here."""

    def add_llvm_module(self, ll_module: Any) -> None:
        """Without the optimisations of single functions: the kernel's cover them."""
        self._final_module.link_in(ll_module)

    def finalize(self) -> None:
        """Nothing is optimised, linked or generated."""
        self._raise_if_finalized()
        self._final_module.verify()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """What Python would call."""
        return cast(int, ctypes.cast(_not_from_python, ctypes.c_void_p).value)

    @property
    def codegen(self) -> Any:
        """There is no code whose environment could be set."""
        return _NoCode()


class _NoCode:
    def set_env(self, env_name: str, env: Any) -> None:
        """A part raises nothing and calls nothing of Python's, for which it would need one."""


@ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.py_object, ctypes.py_object)  # type: ignore[untyped-decorator]
def _not_from_python(*_: Any) -> Any:
    raise AssertionError("a part of a kernel is called by kernels only")


def _compiler(library: type[JITCodeLibrary]) -> type[Compiler]:
    class Made(Compiler):  # type: ignore[misc]
        def __init__(self, typing: Any, target: Any, given: Any, *rest: Any) -> None:
            super().__init__(typing, target, given, *rest)
            self.state.library = library(self.state.targetctx.codegen(), library.__name__)
            self.state.library.enable_object_caching()

    return Made


_WHOLE, _PART = _compiler(_Whole), _compiler(_Part)


class KeptBySource(UserProvidedCacheLocator):  # type: ignore[misc]
    """Where numba keeps what it makes of a file: by the file's text, in :func:`folder`, not by where it lies.

    Another copy of the package, in a second environment, finds what is there, as the marks of that folder promise it.
    """

    def get_source_stamp(self) -> str:
        """The file's text; numba before 0.68 goes by the time of its last change, which is each copy's own."""
        return hashlib.sha256(Path(self._py_file).read_bytes()).hexdigest()

    @classmethod
    def get_suitable_cache_subpath(cls, py_file: str) -> str:
        """The room of the file."""
        return Path(py_file).parent.name


def whole(function: Callable[..., Any]) -> Any:
    """Compile a function that Python calls, and keep the machine code on disk, if there is room for it."""
    with _kept_by_source():
        made = numba.njit(cache=True, pipeline_class=_WHOLE, **_OPTIONS)(function)
    if not numba.config.DISABLE_JIT:
        keep = made._cache.save_overload

        def kept(*code: Any) -> None:
            with suppress(OSError):  # a disk that is full takes nothing, and who waits for an answer gets it
                keep(*code)

        made._cache.save_overload = kept
    return made


@contextmanager
def _kept_by_source() -> Iterator[None]:
    """Let numba ask :class:`KeptBySource` first; it reads its settings when a function is made known to it."""
    elsewhere = ("InTreeCacheLocator", "UserWideCacheLocator", "ZipCacheLocator")
    ours = {
        "CACHE_DIR": str(folder()),
        "CACHE_LOCATOR_CLASSES": ",".join((f"{__name__}.{KeptBySource.__name__}", *elsewhere)),
    }
    before = {name: getattr(numba.config, name) for name in ours}
    try:
        for name, value in ours.items():
            setattr(numba.config, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(numba.config, name, value)


def lowered(function: Callable[..., Any], *, inline: bool) -> Any:
    """Compile a function that only kernels call."""
    without = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    made: Any = numba.njit(pipeline_class=_PART, forceinline=inline, **without, **_OPTIONS)(function)
    if not numba.config.DISABLE_JIT:
        typed = made.get_call_template
        made.get_call_template = lambda args, kws: typed(tuple(map(_widened, args)), kws)
    return made


def _widened(argument: types.Type) -> types.Type:
    """One form of a part for all integers that fit 64 bits, not one for each constant and width it is called with."""
    plain = unliteral(argument)
    return types.int64 if isinstance(plain, types.Integer) and plain != types.uint64 else plain
