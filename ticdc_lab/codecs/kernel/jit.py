"""numba's decorator with a cache that belongs to exactly this source.

numba keys its cache by the file of the function alone, so a change in a callee of another file would go unnoticed:
the folder's name is therefore a digest of all kernel sources.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

from ticdc_lab.environment import cache_folder

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def _digest() -> str:
    h = hashlib.sha256(numba.__version__.encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        h.update(source.read_bytes())
    return h.hexdigest()[:16]


_FOLDER = cache_folder() / "numba" / _digest()


def kernel(function: Kernel) -> Kernel:
    """Compile ``function`` without the interpreter and keep the machine code on disk."""
    return _compiled(function, inline=False)


def small_kernel(function: Kernel) -> Kernel:
    """The same for a small function that is better pasted into its callers than called."""
    return _compiled(function, inline=True)


def _compiled(function: Kernel, *, inline: bool) -> Kernel:
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(_FOLDER)
    try:
        # Without numba's runtime an array handed over is not counted, which would cost more than the work itself.
        made = numba.njit(cache=True, nogil=True, error_model="numpy", _nrt=False, forceinline=inline)(function)
    finally:
        numba.config.CACHE_DIR = before
    return cast(Kernel, made)
