"""``python ingest_killed.py STEP TABLE ARGS``: ``ticdc-lab ingest ARGS``, killed after a step of its second batch.

A process group of its own dies with it, the JVM too, as by ``kill -9`` or a power failure.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from typing import Any

from ticdc_lab.cli import main

ingest = import_module("ticdc_lab.lake.ingest")
STEP, TABLE = sys.argv[1:3]
real = getattr(ingest, STEP)
calls = 0


def deadly(*args: Any) -> Any:
    """The step, whose second is the last thing that this process does."""
    global calls
    found = real(*args)
    calls += STEP != "append" or args[1] == TABLE
    if calls == 2:
        os.killpg(0, signal.SIGKILL)
    return found


setattr(ingest, STEP, deadly)
main(["ingest", *sys.argv[3:]])
