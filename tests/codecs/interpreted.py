"""Run the kernels in the interpreter over arrays that refuse an index outside them or below zero.

Compiled code checks no index, so a wrong one would go unnoticed there. Usage, with ``NUMBA_DISABLE_JIT=1``:
``interpreted.py SEED MESSAGES PROTOCOL ..``; prints of each protocol how many messages were decoded and rejected.
"""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

import comparing  # noqa: E402
import making  # noqa: E402

from ticdc_lab.codecs.kernel import avro, batch, columns, debezium, in_part, simple, state  # noqa: E402


class Checked(np.ndarray):
    """An array with plain integers in it, as compiled code sees them, and no index below zero."""

    def __getitem__(self, at: Any) -> Any:
        _no_negative(at)
        found = super().__getitem__(at)
        return int(found) if isinstance(found, np.integer) and found.dtype != np.uint64 else found

    def __setitem__(self, at: Any, value: Any) -> None:
        _no_negative(at)
        super().__setitem__(at, value & 0xFF if self.dtype == np.uint8 and isinstance(value, int) else value)


def _no_negative(at: Any) -> None:
    for i in at if isinstance(at, tuple) else (at,):
        if isinstance(i, int | np.integer) and i < 0:
            raise IndexError(f"index {at}")


def check_arrays() -> None:
    """Put checked arrays in place of all that the kernels read and write."""
    import_module("ticdc_lab.codecs.kernel.self_described")
    kernels = [module for name, module in sys.modules.items() if name.startswith("ticdc_lab.codecs.kernel.")]
    for module in kernels:
        for name, value in list(vars(module).items()):
            if isinstance(value, np.ndarray):
                setattr(module, name, value.view(Checked))
    plain_state, plain_spans, plain_crcs = state._new_state, batch.spans, columns.fresh_crcs

    def checked_state(*size: int) -> state.State:
        return checked(plain_state(*size))

    state._new_state = checked_state
    columns.fresh_crcs = lambda st: checked(plain_crcs(st))
    batch.spans = in_part.spans = lambda column: tuple(a.view(Checked) for a in plain_spans(column))
    plain_versions = simple.versions_of
    simple.versions_of = lambda *tables, **most: checked(plain_versions(*tables, **most))
    plain_definitions = simple.definitions_of
    simple.definitions_of = lambda brought: checked(plain_definitions(brought))
    avro.NO_TABLES = checked(avro.NO_TABLES)
    plain_avro = avro.plans_of
    avro.plans_of = simple.plans_of = lambda flats: checked(plain_avro(flats))
    plain_plans = debezium.plans_of
    debezium.plans_of = lambda *known, **most: checked(plain_plans(*known, **most))


def checked(plain: Any) -> Any:
    """The same arrays, with every index checked."""
    return type(plain)(**{name: getattr(plain, name).view(Checked) for name, _, _ in plain.form})


def beside_python(protocol: str, r: Random) -> tuple[int, int]:
    """How many messages a kernel beside a codec in Python took, of how many."""
    if protocol == "simple":
        import test_simple_kernel as simples

        some = [simples.row(simples.PLAIN, simples.PLAIN), simples.summed(simples.PLAIN), *simples.ODD_ROWS]
        mixed = [r.choice((making.broken(m, r), m)) for m in some]
        return simples.alike(mixed, simples.tables(simples.schema())), len(mixed)
    if protocol == "debezium":
        import test_debezium_kernel as debeziums

        some = [
            debeziums.TYPED,
            debeziums.UNTYPED,
            debeziums.row(debeziums.PLAIN, debeziums.PLAIN),
            *debeziums.ODD_ROWS,
        ]
        mixed = [r.choice((making.broken(m, r), m)) for m in some]
        return debeziums.alike(mixed, r.choice((None, debeziums.LOG))), len(mixed)
    if protocol == "avro":
        import test_avro_kernel as avros

        name = r.choice([*avros.TORTURE, avros.GOLDEN[0], avros.GOLDEN[2]])
        of, some, known = avros.topic(name)
        mixed = [r.choice((making.broken(m, r), m)) for m in r.sample(some, 12)]
        return avros.alike(of, mixed, known), len(mixed)
    if protocol in ("maxwell", "mq-v1"):
        import test_self_described_kernel as described

        some = [*described.ODD[protocol], *described.PLAIN[protocol]]
        mixed = [r.choice((making.broken(m, r), m)) for m in some]
        return described.alike(mixed, protocol), len(mixed)
    import test_canal_kernel as canals

    mixed = [r.choice((making.broken(m, r), m)) for m in [*canals.values(canals.WHOLE), *canals.ODD]]
    return canals.alike(mixed), len(mixed)


def main(protocol: str, seed: int, n: int) -> None:
    """Decode and compare with the reference decoder."""
    r, done, rejected = Random(f"{protocol}{seed}"), 0, 0
    while protocol in ("simple", "canal", "debezium", "avro", "maxwell", "mq-v1") and done < n:
        taken, of = beside_python(protocol, r)
        done, rejected = done + of, rejected + of - taken
    while done < n:
        some = making.messages(protocol, r)
        for message, kernel in zip(some, comparing.by_kernel(some, protocol), strict=True):
            assert not (said := comparing.difference(message, protocol, kernel)), (said, message)
            rejected += isinstance(kernel, str)
        done += len(some)
    print(protocol, done - rejected, rejected)


if __name__ == "__main__":
    warnings.simplefilter("ignore", RuntimeWarning)  # 64-bit hashes are meant to overflow
    check_arrays()
    for named in sys.argv[3:]:
        main(named, int(sys.argv[1]), int(sys.argv[2]))
