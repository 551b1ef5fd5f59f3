"""What is given to numba, which this module imports, and what it makes: :mod:`ticdc_lab.codecs.kernel.jit` asks for it.

numba by itself optimises and generates code for every function with everything below it, again at each level of calls:
eighty seconds of what only the last level is used of. Here a function that only kernels call is a *part*: typed and
lowered, and no more; the kernel that Python calls links, optimises and keeps all its parts together.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numba
from numba.core import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.types.containers import BaseTuple
from numba.core.types.misc import unliteral
from numba.core.typing.templates import make_intrinsic_template
from numba.np.numpy_support import from_dtype

from ticdc_lab.codecs.kernel import llvm
from ticdc_lab.codecs.kernel.native import Form, MachineCode

_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "_nrt": False,  # numba's runtime would count references of arrays, which costs more than the work itself
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}


class _Library(JITCodeLibrary):  # type: ignore[misc]  # numba has no types
    """MachineCode that :mod:`~.native` calls, and nothing of numba's."""

    def get_pointer_to_function(self, name: str) -> int:
        """What Python would call; where numba asks for it, all is there."""
        self._ensure_finalized()
        return cast(int, ctypes.cast(_not_from_python, ctypes.c_void_p).value)

    @property
    def codegen(self) -> Any:
        """There is no code whose environment could be set."""
        return _NoCode()


class _WholeCode(_Library):
    """A kernel's code: it links the parts that its parts call, too."""

    def finalize(self) -> None:
        """Callers first: LLVM takes a function in only where one that is there already calls it."""
        self._linking_libraries = _callees(self)[:-1][::-1]
        super().finalize()


def _callees(library: Any, done: list[Any] | None = None) -> list[Any]:
    """All that a kernel or part calls, each before what calls it; itself last."""
    found = [] if done is None else done
    for called in library._linking_libraries if isinstance(library, _WholeCode | _Part) else ():
        if called not in found:
            _callees(called, found)
    found.append(library)
    return found


class _Part(_Library):
    """A part's code: its own, which others link; it is never run from here."""

    def add_llvm_module(self, ll_module: Any) -> None:
        """Without the optimisations of single functions: the kernel's cover them."""
        self._final_module.link_in(ll_module)

    def finalize(self) -> None:
        """Nothing is optimised, linked or generated."""
        self._raise_if_finalized()
        self._final_module.verify()
        self._finalized = True


class _NoCode:
    def set_env(self, env_name: str, env: Any) -> None:
        """Kernels raise nothing and call nothing of Python's, for which they would need one."""


@ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.py_object, ctypes.py_object)  # type: ignore[untyped-decorator]
def _not_from_python(*_: Any) -> Any:
    raise AssertionError("numba does not call kernels")


def _compiler(library: type[JITCodeLibrary]) -> type[Compiler]:
    class Made(Compiler):  # type: ignore[misc]
        def __init__(self, typing: Any, target: Any, given: Any, *rest: Any) -> None:
            super().__init__(typing, target, given, *rest)
            self.state.library = library(self.state.targetctx.codegen(), library.__name__)
            self.state.library.enable_object_caching()

    return Made


_WHOLE, _PART = _compiler(_WholeCode), _compiler(_Part)


def whole(function: Callable[..., Any]) -> Any:
    """What a function that Python calls is to numba."""
    return numba.njit(pipeline_class=_WHOLE, **_OPTIONS)(function)


def compiled(kernel: Any, form: Form) -> MachineCode:
    """The machine code of what :func:`whole` gives, for arguments of a form."""
    arguments = tuple(map(_type_of, form))
    kernel.compile(arguments)
    made = kernel.overloads[arguments]
    returns = made.signature.return_type
    each = () if returns is types.none else tuple(returns) if isinstance(returns, BaseTuple) else (returns,)
    called = [f.name for f in made.library._final_module.functions if f.is_declaration]
    outside = [name for name in called if not name.startswith("llvm.")]
    return MachineCode(made.fndesc.llvm_func_name, [*map(str, each)], outside, made.library._get_compiled_object())


def _type_of(form: Form) -> types.Type:
    """The type of an argument of a form (:func:`ticdc_lab.codecs.kernel.native.form_of`)."""
    kind, *of = form
    if kind == "array":
        return types.Array(from_dtype(of[0]), of[1], of[2])
    if kind == "arrays":
        return llvm.arrays_type(of[0])
    if kind == "tuple":
        return BaseTuple.from_types(tuple(map(_type_of, of[1:])), of[0])
    return cast(types.Type, getattr(types, kind))


def lowered(function: Callable[..., Any], *, inline: bool) -> Any:
    """What a function that only kernels call is to numba."""
    made: Any = numba.njit(pipeline_class=_PART, forceinline=inline, **_OPTIONS)(function)
    typed = made.get_call_template
    made.get_call_template = lambda args, kws: typed(tuple(map(_widened, args)), kws)
    return made


def written(function: Callable[..., Any]) -> Any:
    """What replaces a function, in LLVM's words."""
    own = getattr(llvm, function.__name__)
    return SimpleNamespace(_numba_type_=types.Function(make_intrinsic_template(own, own, own.__name__)))


def _widened(argument: types.Type) -> types.Type:
    """One form of a part for all integers that fit 64 bits, not one for each constant and width it is called with."""
    plain = unliteral(argument)
    return types.int64 if isinstance(plain, types.Integer) and plain != types.uint64 else plain
