"""Compile the kernels into the cache folder, before many processes would each do it: ``compile_kernels.py PART``.

The parts take about as long as each other and run at the same time. What is in the cache is not compiled again.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random

PARTS = ("open-protocol", "canal-json")


def at_once() -> None:
    """Compile all parts, each in a process of its own."""
    for process in [subprocess.Popen([sys.executable, __file__, part]) for part in PARTS]:
        if process.wait() != 0:
            raise RuntimeError(f"the kernels could not be compiled: {process.args!r} failed")


def main(part: str) -> None:
    """Decode a few messages, which compiles all that it calls."""
    tests = Path(__file__).resolve().parent
    sys.path[:0] = [str(tests.parent), str(tests), str(tests / "codecs")]
    import csv_made
    import pyarrow as pa
    from comparing import by_kernel
    from making import messages

    from ticdc_lab.codecs.csv_settings import DEFAULTS
    from ticdc_lab.sources.capture import parse

    by_kernel(messages(part, Random(1)), part)
    if part == "canal-json":
        csv_made.decoded(csv_made.made_file(Random(1), DEFAULTS)[0].encode(), DEFAULTS)
    else:
        parse(pa.array([b"{}"]), pa.array(["file"]))


if __name__ == "__main__":
    main(sys.argv[1])
