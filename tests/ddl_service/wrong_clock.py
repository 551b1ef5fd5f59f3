"""A worker whose wall clock is set while it runs: ``python wrong_clock.py FILE ddl-service serve ..``.

FILE defines how many seconds its clock is ahead. All Python of the process sees that clock; the steady clock stays as
it is, as when a machine's time is set. gRPC's core has the machine's, so its Python has too: its deadlines are moments
that one shows the other.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import SimpleNamespace

from grpc.aio import _utils

_set, _true_ns = Path(sys.argv[1]), time.time_ns


def _wrong_ns() -> int:
    return _true_ns() + int(1e9 * float(_set.read_text() or 0))


if __name__ == "__main__":
    _utils.time = SimpleNamespace(time=time.time)
    time.time_ns = _wrong_ns
    time.time = lambda: _wrong_ns() / 1e9
    from ticdc_lab.cli import main

    main(sys.argv[2:])
