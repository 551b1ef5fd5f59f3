"""plotly.js with the traces that our figures have, and no others: a quarter of the whole.

``make.sh`` builds it again from plotly's own sources; a test checks that ``SHA256`` is the text's.
"""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path

SHA256 = "f0c1204b1648a84f2cbbf6018520f7d9a1ca060ba636aa8b731c70e2581a76e1"
_PACKED = Path(__file__).with_name("plotly.min.js.gz")


def packed_library() -> bytes:
    """plotly.js, packed with gzip."""
    return _PACKED.read_bytes()


@cache
def library() -> str:
    """plotly.js as text; it names itself ``Plotly``, and is a CommonJS module where there is a ``module``."""
    return gzip.decompress(packed_library()).decode()
