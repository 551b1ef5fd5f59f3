"""Machine code of kernels is kept on disk and runs without numba."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from ticdc_lab.codecs.kernel import cache, native
from ticdc_lab.codecs.kernel.jit import kernel
from ticdc_lab.codecs.kernel.pointer import Arrays


class Both(NamedTuple):
    """Two arrays in one argument."""

    some: np.ndarray
    more: np.ndarray


@kernel
def told(whole: np.ndarray, both: Both, table: Arrays, n: int, wide: np.uint64, yes: bool) -> tuple[int, int]:
    """Something of every kind of argument."""
    total = 0
    for i in range(whole.shape[0]):
        for j in range(whole.shape[1]):
            total += whole[i, j] * (n + j)
    both.more[0] += 1
    table.own[1] = np.int64(wide >> np.uint64(60))  # type: ignore[attr-defined]
    return total + both.some[len(both.some) - 1], 1 if yes else 0


@kernel
def nothing(x: np.ndarray) -> None:
    """Return nothing."""
    x[0] += 1


@kernel
def half(x: float, yes: bool) -> float:
    """Return a number with a point."""
    return x / 2 if yes else x


def test_arguments_of_every_kind_arrive(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Arrays arrive whole and as views of some columns or rows."""
    monkeypatch.setattr(native, "folder", lambda: tmp_path)
    whole, own = np.arange(12).reshape(3, 4), Arrays(own=np.zeros(2, np.int64))
    for given in (whole, whole[:, ::2], whole.T):
        more = np.zeros(1, np.int64)
        expected = sum(int(given[i, j]) * (5 + j) for i in range(given.shape[0]) for j in range(given.shape[1]))
        both, wide = Both(np.array([1, 100]), more), np.uint64((1 << 64) - 1)
        assert told(given, both, own, np.int64(5), wide, True) == (expected + 100, 1)
        assert more[0] == 1
        assert own.own[1] == 15  # type: ignore[attr-defined]
    x = np.zeros(1, np.int64)
    assert nothing(x) is None
    assert x[0] == 1
    assert (half(3.0, True), half(3.0, False)) == (1.5, 3.0)
    assert len([*tmp_path.glob("*.code")]) == 4  # whole and in part are two forms of one kernel


def test_code_that_is_damaged_is_compiled_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither half of a file nor another's bytes reach the processor."""
    monkeypatch.setattr(native, "folder", lambda: tmp_path)
    x, form = np.zeros(1, np.int64), native.form_of((np.zeros(1, np.int64),))
    function, compiled = nothing.__wrapped__, nothing._compiled  # type: ignore[attr-defined]
    asked = list[native.Form]()

    def counted(own: native.Form) -> native.MachineCode:
        asked.append(own)
        found: native.MachineCode = compiled(own)
        return found

    native.loaded(function, form, counted)((x,))
    (place,) = tmp_path.glob("*.code")
    whole = place.read_bytes()
    native.loaded(function, form, counted)((x,))
    assert len(asked) == 1
    for damaged in (whole[: len(whole) // 2], whole[:-1] + b"!", b"", b"{}\n", whole.replace(b"digest", b"digits")):
        place.write_bytes(damaged)
        native.loaded(function, form, counted)((x,))
        assert place.read_bytes().startswith(b'{"name"')
    assert (len(asked), x[0]) == (6, 7)


def test_where_nothing_can_be_written_a_kernel_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The code is used as it was made."""
    (tmp_path / "file").touch()
    monkeypatch.setattr(native, "folder", lambda: tmp_path / "file" / "below")
    x = np.zeros(1, np.int64)
    function, compiled = nothing.__wrapped__, nothing._compiled  # type: ignore[attr-defined]
    native.loaded(function, native.form_of((x,)), compiled)((x,))
    assert x[0] == 1


def test_kernels_call_nothing_but_c() -> None:
    """LLVM ends the process where code calls what is not there: a process without numba has all that they call."""
    places = [*cache.folder().glob("ticdc_lab.*.code")]
    assert len(places) > 10
    called = {name for place in places for name in native._kept(place).outside}  # type: ignore[union-attr]
    assert "strtod" in called
    code = (
        "import sys; from ticdc_lab.codecs.kernel import native; binding, _ = native._engine();"
        "print([n for n in sys.argv[1:] if binding.address_of_symbol(n) is None], 'numba' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, *called], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] False"
