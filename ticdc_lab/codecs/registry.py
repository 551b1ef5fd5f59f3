"""The wire formats and what decodes each."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import cast

from ticdc_lab.codecs.builder import Codec
from ticdc_lab.codecs.known import Known

KERNELS = ("open-protocol", "canal-json")
"""Formats with a compiled kernel (:mod:`ticdc_lab.codecs.kernel.batch`)."""

CODECS = {
    "simple": "simple",
    "debezium": "debezium",
    "avro": "avro",
}
"""Formats whose messages a function in Python decodes: the module that has ``codec(known) -> Codec``."""

PROTOCOLS = (*KERNELS, *CODECS)
"""Protocols that can be decoded."""


def codec_of(protocol: str, known: Known) -> Codec:
    """The codec of a format of :data:`CODECS`."""
    module = import_module(f"ticdc_lab.codecs.{CODECS[protocol]}")
    return cast(Callable[[Known], Codec], module.codec)(known)
