"""Machine code of kernels, on disk and called from Python: numba makes it, and is not imported for it to run.

Importing numba and filling its tables takes 0.4 CPU seconds, as much as decoding 200,000 messages.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from ticdc_lab.codecs.kernel.cache import folder
from ticdc_lab.codecs.kernel.pointer import Arrays

Form = tuple[Any, ...]
"""What code is compiled for: the kind and properties of one argument, or of each."""

Loaded = Callable[[tuple[Any, ...]], Any]
"""A kernel, given all its arguments in a tuple."""

_KINDS: dict[str, Any] = {
    "int64": ctypes.c_int64, "uint64": ctypes.c_uint64, "bool": ctypes.c_bool, "float64": ctypes.c_double,
    "address": ctypes.c_void_p,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class MachineCode:
    """An object file: its function's name, what that returns, and what it calls that the process has to have."""

    name: str
    returns: list[str]
    outside: list[str]
    binary: bytes = field(repr=False)


def form_of(given: tuple[Any, ...]) -> Form:
    """The form of the arguments of a call."""
    return tuple(map(_form, given))


def _form(value: Any) -> Form:
    if isinstance(value, np.ndarray):
        return "array", value.dtype, value.ndim, "C" if value.flags.c_contiguous else "A"
    if isinstance(value, Arrays):
        return "arrays", value.form
    if isinstance(value, tuple):
        return "tuple", type(value), *map(_form, value)
    if isinstance(value, bool | np.bool_):
        return ("bool",)
    if isinstance(value, float):
        return ("float64",)
    return ("uint64",) if isinstance(value, np.uint64) or value >> 63 > 0 else ("int64",)


def _words(value: Any, form: Form) -> Iterator[tuple[str, Any]]:
    """What numba passes for an argument, each with its kind."""
    if form[0] == "array":
        yield from (("address", None), ("address", None), ("int64", value.size), ("int64", value.itemsize))
        yield "address", value.__array_interface__["data"][0]
        yield from (("int64", n) for n in (*value.shape, *value.strides))
    elif form[0] == "arrays":
        yield "address", value.address
    elif form[0] == "tuple":
        for one, of in zip(value, form[2:], strict=True):
            yield from _words(one, of)
    else:
        yield form[0], value.item() if isinstance(value, np.generic) else value


def loaded(function: Callable[..., Any], form: Form, compiled: Callable[[Form], MachineCode]) -> Loaded:
    """What calls a kernel with arguments of a form: its code lies on disk, or is ``compiled`` and kept there."""
    stamp = hashlib.sha256(repr(form).encode() + Path(function.__code__.co_filename).read_bytes()).hexdigest()
    place = folder() / f"{function.__module__}.{function.__qualname__}-{stamp[:16]}.code"
    code = _kept(place)
    if code is None or _absent(code):  # numba has functions of its own
        code = compiled(form)
        with suppress(OSError):  # a disk that is full takes nothing, and who waits for an answer gets it
            _keep(place, code)
    return _called(code, form)


def _kept(place: Path) -> MachineCode | None:
    """The code that a file has, if it is whole."""
    try:
        said, binary = place.read_bytes().split(b"\n", 1)
        about = json.loads(said)
    except (OSError, ValueError):
        return None
    return (
        MachineCode(binary=binary, **about) if about.pop("digest", "") == hashlib.sha256(binary).hexdigest() else None
    )


def _keep(place: Path, code: MachineCode) -> None:
    about = {k: v for k, v in asdict(code).items() if k != "binary"} | {
        "digest": hashlib.sha256(code.binary).hexdigest()
    }
    draft = place.with_name(f"{place.name}-{uuid4().hex[:12]}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(json.dumps(about).encode() + b"\n" + code.binary)
        draft.replace(place)
    finally:
        draft.unlink(missing_ok=True)


@cache
def _engine() -> Any:
    """What takes object files into this process."""
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine(
        jit=True, reloc="static", codemodel="jitdefault"
    )
    return binding, binding.create_mcjit_compiler(binding.parse_assembly(""), machine)


def _absent(code: MachineCode) -> list[str]:
    """What code calls that this process has not: LLVM would end it."""
    binding, _ = _engine()
    return [name for name in code.outside if binding.address_of_symbol(name) is None]


def _called(code: MachineCode, form: Form) -> Loaded:
    binding, engine = _engine()
    assert not _absent(code), f"{code.name} calls {_absent(code)}"
    engine.add_object_file(binding.ObjectFileRef.from_data(code.binary))
    engine.finalize_object()
    address = engine.get_function_address(code.name)

    class Returned(ctypes.Structure):
        _fields_ = [(f"_{i}", _KINDS[kind]) for i, kind in enumerate(code.returns)]

    call: Any = None

    def run(given: tuple[Any, ...]) -> Any:
        nonlocal call
        passed = [word for value, of in zip(given, form, strict=True) for word in _words(value, of)]
        if call is None:
            kinds = (_KINDS[kind] for kind, _ in passed)
            call = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *kinds)(address)
        returned, fault = Returned(), ctypes.c_void_p()
        status = call(ctypes.addressof(returned), ctypes.addressof(fault), *[word for _, word in passed])
        assert not status, f"{code.name} raised"
        found = [getattr(returned, f"_{i}") for i in range(len(code.returns))]
        return found[0] if len(found) == 1 else tuple(found) if found else None

    return run
