"""The wire formats and what decodes each."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, cast

from ticdc_lab.errors import ProtocolError
from ticdc_lab.settings.keys import protocol_named

if TYPE_CHECKING:
    from ticdc_lab.codecs.decoded import PartKernel
    from ticdc_lab.codecs.event import Codec
    from ticdc_lab.codecs.known import Known

KERNELS = ("open-protocol", "canal-json")
"""Formats with a compiled kernel, too (:mod:`ticdc_lab.codecs.kernel.batch`)."""

PART_KERNELS = ("canal", "debezium", "avro", "debezium-avro", "simple", "maxwell", "mq-v1")
"""Formats with a kernel beside the codec in Python, for what TiCDC writes; simple has avro's, too."""

CODECS = {
    "open-protocol": "plain.open_protocol",
    "canal-json": "plain.canal_json",
    "mq-v1": "mq_v1",
    "simple": "simple",
    "debezium": "debezium",
    "avro": "avro",
    "debezium-avro": "debezium_avro",
    "canal": "canal",
    "maxwell": "maxwell",
}
"""Formats, and the module that has the function in Python which decodes a message: ``codec(known) -> Codec``."""

PROTOCOLS = tuple(CODECS)
"""Protocols that can be decoded."""

FRAMED = ("avro", "debezium-avro")
"""Protocols whose messages name a schema of a registry, which alone distinguishes them."""

WRITTEN = ("open-protocol", "canal-json", "mq-v1")
"""Protocols that events can be written in (:mod:`ticdc_lab.encode`)."""


def require_written(protocol: str) -> None:
    """Raise :class:`ProtocolError` unless events can be written in ``protocol``."""
    if protocol not in WRITTEN:
        raise ProtocolError(
            f"Events cannot be written as {protocol!r}; expected one of {', '.join(WRITTEN)}.",
            hint="Choose one of them: `produce` takes it as --to, `workload` as --protocol.",
        )


def require_protocol(protocol: str) -> None:
    """Raise :class:`ProtocolError` unless ``protocol`` can be decoded."""
    if protocol_named(protocol) not in PROTOCOLS:
        raise ProtocolError(
            f"Protocol {protocol!r} is unknown; expected one of {', '.join(PROTOCOLS)} or auto.",
            hint="Name the protocol of the changefeed's sink-uri (its `protocol=` parameter).",
        )


def codec_of(protocol: str, known: Known) -> Codec:
    """The codec of a format."""
    module = import_module(f"ticdc_lab.codecs.{CODECS[protocol]}")
    return cast("Callable[[Known], Codec]", module.codec)(known)


def part_kernel(protocol: str, codec: Codec) -> PartKernel | None:
    """The kernel beside a codec of :data:`PART_KERNELS`; None beside a foreign one."""
    if protocol == "canal":
        from ticdc_lab.codecs.kernel import canal

        return canal.KERNEL
    if protocol in ("maxwell", "mq-v1"):
        from ticdc_lab.codecs.kernel import self_described

        return self_described.KERNELS[protocol]
    return getattr(codec, "kernel", None)
