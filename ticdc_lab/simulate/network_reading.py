"""The ``network`` of a scenario file: how messages travel."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, TypeAlias

from ticdc_lab.simulate import network as net
from ticdc_lab.simulate import planned
from ticdc_lab.simulate.planned import Delay
from ticdc_lab.simulate.planned_reading import Names, delay
from ticdc_lab.simulate.scenario_yaml import Value

Transport: TypeAlias = Literal["resend", "datagram"]
_WAY = ("delay", "loss", "duplicate", "reorder")


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """The way from one node to another, where it is not as the rest; None where it is."""

    from_: str
    to: str
    delay: Delay | None = None
    loss: Fraction | None = None
    duplicate: Fraction | None = None
    reorder: Fraction | None = None


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """How messages travel.

    ``resend``: as TiCDC's peer-to-peer messages, a lost one is sent again and order is kept; ``datagram``: neither.
    Probabilities are exact.
    """

    delay: Delay = field(default_factory=Delay)
    loss: Fraction = Fraction(0)
    duplicate: Fraction = Fraction(0)
    reorder: Fraction = Fraction(0)
    transport: Transport = "resend"
    links: tuple[LinkSettings, ...] = ()

    def link(self, one: LinkSettings | planned.Link | None = None) -> net.Link:
        """Give how messages travel, or how they do over one link."""
        whole = _changed(net.GOOD, self)
        return whole if one is None else _changed(whole, one)

    def network(self) -> net.Network:
        """Give the kernel's."""
        links = tuple(((one.from_, one.to), self.link(one)) for one in self.links)
        return net.Network(self.link(), links, self.transport)


def _changed(link: net.Link, one: NetworkSettings | LinkSettings | planned.Link) -> net.Link:
    if one.delay and one.delay.kind == "exponential":
        link = link._replace(delay_us=(one.delay.low_us, one.delay.low_us), tail_us=one.delay.high_us)
    elif one.delay:
        link = link._replace(delay_us=(one.delay.low_us, one.delay.high_us), tail_us=0)
    return link._replace(
        loss=link.loss if one.loss is None else float(one.loss),
        duplicate=link.duplicate if one.duplicate is None else float(one.duplicate),
        reorder=link.reorder if one.reorder is None else float(one.reorder),
    )


def network(value: Value, names: Names) -> NetworkSettings:
    """Read ``{delay: [1ms, 5ms], loss: 1%, transport: datagram}``."""
    given = value.fields((*_WAY, "transport", "links"))
    links = given["links"].items() if "links" in given else []
    transport = given["transport"].choice(("resend", "datagram"), "a transport") if "transport" in given else "resend"
    return NetworkSettings(
        delay=delay(given["delay"]) if "delay" in given else Delay(),
        loss=_share(given, "loss") or Fraction(0),
        duplicate=_share(given, "duplicate") or Fraction(0),
        reorder=_share(given, "reorder") or Fraction(0),
        transport="datagram" if transport == "datagram" else "resend",
        links=tuple(_link(one, names) for one in links),
    )


def _link(value: Value, names: Names) -> LinkSettings:
    given = value.fields({"from", "to", *_WAY}, required=["from", "to"])
    return LinkSettings(
        names.node(given["from"]),
        names.node(given["to"]),
        delay(given["delay"]) if "delay" in given else None,
        *(_share(given, name) for name in _WAY[1:]),
    )


def _share(given: dict[str, Value], name: str) -> Fraction | None:
    return given[name].probability() if name in given else None
