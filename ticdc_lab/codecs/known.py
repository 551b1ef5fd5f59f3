"""What decoding needs beside the messages: schemas by id, table versions, and where large messages were put."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ticdc_lab.codecs.bounds import BOUNDS, Bounds


@dataclass(frozen=True, slots=True)
class Known:
    """Facts from outside a message; it travels to the workers with the decoder.

    Attributes
    ----------
    schemas
        Avro schemas (JSON text) by their id in the registry, a number or a UUID.
    registry_url
        Where an id that is not among ``schemas`` is asked for; empty: nowhere.
    tables
        Table definitions of the simple protocol by ``(schema, table, version)``, as their messages write them.
    claim_check
        The folder (a path or a URL) that large messages were written to; None: their content is not looked for.
    bounds
        How much a message, and a batch of them, may become.
    """

    schemas: Mapping[str, str] = field(default_factory=dict)
    registry_url: str = field(default="", repr=False)  # may hold a password
    tables: Mapping[tuple[str, str, int], Mapping[str, Any]] = field(default_factory=dict)
    claim_check: str | None = field(default=None, repr=False)  # so may the URL of an object store
    bounds: Bounds = BOUNDS


NOTHING = Known()
