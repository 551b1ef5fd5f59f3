"""A scenario in the words of the kernel: settings, network, and what happens at which moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import singledispatch
from itertools import product
from typing import Any

from immutables import Map

from ticdc_lab.simulate import faults as kernel
from ticdc_lab.simulate import network as net
from ticdc_lab.simulate import planned as file
from ticdc_lab.simulate.network_reading import LinkSettings, NetworkSettings
from ticdc_lab.simulate.planned import Delay, Planned
from ticdc_lab.simulate.scenario import Scenario
from ticdc_lab.simulate.scheduler import etcd_messages, roles
from ticdc_lab.simulate.scheduler import planned as own
from ticdc_lab.simulate.scheduler.capture_state import Stick
from ticdc_lab.simulate.scheduler.variants import Settings

_SEEDS_APART = 1_000_003


def settings_of(scenario: Scenario) -> Settings:
    """Give the settings with the cluster; captures that join later are in it too."""
    cluster, settings = scenario.cluster, scenario.settings
    joins, versions = joined(scenario)
    added = [e.what for e in scenario.events if isinstance(e.what, own.AddTable)]
    traffic = {t.id: t.traffic for t in cluster.tables if t.traffic != 1} | {t.table: t.traffic for t in added}
    found: Settings = replace(
        settings,
        variant=scenario.variant,
        captures=(*cluster.captures, *joins),
        tables=tuple(t.id for t in cluster.tables),
        versions=Map(cluster.versions).update(versions),
        balance=replace(settings.balance, traffic=Map(traffic)),
    )
    return found


def joined(scenario: Scenario) -> tuple[tuple[str, ...], Map[str, str]]:
    """Give the captures that join later, and the versions of those that have one of their own."""
    joins = [e.what for e in scenario.events if isinstance(e.what, own.Join)]
    return tuple(j.capture for j in joins), Map({j.capture: j.version for j in joins if j.version})


def network_of(settings: NetworkSettings) -> net.Network:
    """Give the network."""
    whole = _link(LinkSettings("", "", settings.delay, settings.loss, settings.duplicate, settings.reorder), net.GOOD)
    links = tuple(((one.from_, one.to), _link(one, whole)) for one in settings.links)
    return net.Network(whole, links, settings.transport)


def _link(one: LinkSettings | file.Link, whole: net.Link) -> net.Link:
    link = _delayed(whole, one.delay) if one.delay else whole
    return link._replace(
        loss=link.loss if one.loss is None else float(one.loss),
        duplicate=link.duplicate if one.duplicate is None else float(one.duplicate),
        reorder=link.reorder if one.reorder is None else float(one.reorder),
    )


def _delayed(link: net.Link, delay: Delay) -> net.Link:
    if delay.kind == "exponential":
        return link._replace(delay_us=(delay.low_us, delay.low_us), tail_us=delay.high_us)
    return link._replace(delay_us=(delay.low_us, delay.high_us), tail_us=0)


def faults_of(scenario: Scenario, seed: int) -> list[kernel.Fault]:
    """Give what happens: as planned, and as the seed draws it."""
    found = [fault for event in scenario.events for fault in happens(event.what, event, scenario)]
    for i, some in enumerate(scenario.random):
        chaos = kernel.Chaos(some.until_us - some.from_us, some.every_us, some.faults)
        drawn = kernel.drawn(chaos, scenario.cluster.fallible, etcd_messages.ETCD, seed + i * _SEEDS_APART)
        found += [fault._replace(at_us=fault.at_us + some.from_us) for fault in drawn]
    return sorted(found, key=lambda fault: fault.at_us)


@singledispatch
def happens(what: Any, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    """Give the kernel's faults for an event of the file."""
    raise TypeError(what)


@happens.register
def _(what: file.Crash, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield kernel.Crash(event.at_us, what.node)


@happens.register
def _(what: file.Restart, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield kernel.Restart(event.at_us, what.node, what.keep_state)


@happens.register
def _(what: file.Pause, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    resumed = [
        e.at_us for e in scenario.events
        if isinstance(e.what, file.Resume) and e.what.node == what.node and e.at_us > event.at_us
    ]  # fmt: skip
    until_us = min([*resumed, scenario.until_us + 1 if what.for_us is None else event.at_us + what.for_us])
    yield kernel.Pause(event.at_us, what.node, until_us - event.at_us)


@happens.register
def _(what: file.Resume, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield from ()


@happens.register
def _(what: file.Partition, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield from parted(what, event.at_us, _pairs(what, scenario))


@happens.register
def _(what: file.Heal, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield from healed(what, event.at_us, scenario, _pairs)


def parted(cut: file.Partition, at_us: int, pairs: Sequence[tuple[str, str]]) -> Iterator[kernel.Fault]:
    """Give the cuts between pairs of nodes."""
    for a, b in pairs:
        yield kernel.Part(at_us, a, b, cut.one_way, cut.for_us)


def healed(
    what: file.Heal,
    at_us: int,
    scenario: Scenario,
    pairs: Callable[[file.Partition, Scenario], Sequence[tuple[str, str]]],
) -> Iterator[kernel.Fault]:
    """Give what mends the cuts made so far, those of some nodes only where it names them."""
    cuts = [e.what for e in scenario.events if isinstance(e.what, file.Partition) and e.at_us <= at_us]
    for a, b in dict.fromkeys(pair for cut in cuts for pair in pairs(cut, scenario)):
        if not what.nodes or {a, b} & set(what.nodes):
            yield kernel.Heal(at_us, a, b)


@happens.register
def _(what: file.Lose, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield kernel.Lose(event.at_us, what.message, what.from_, what.to, what.count)


@happens.register
def _(what: file.Refuse, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield kernel.Refuse(event.at_us, what.from_, what.to, what.for_us)


@happens.register
def _(what: file.Link, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    whole = network_of(scenario.network).link
    yield kernel.Relink(event.at_us, what.from_, what.to, _link(what, whole), what.for_us)


@happens.register
def _(what: file.Clock, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield kernel.Skew(event.at_us, what.node, what.offset_us, int(what.drift * 1_000_000))


@happens.register
def _(what: own.Join, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield kernel.Join(event.at_us, what.capture)


@happens.register
def _(what: own.RestartProcessor, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield kernel.Ask(event.at_us, what.capture, roles.Restart())


@happens.register
def _(what: own.ExpireSession, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield kernel.Ask(event.at_us, etcd_messages.ETCD, etcd_messages.Expire(what.capture))


@happens.register
def _(what: own.TwoOwners, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield kernel.Ask(event.at_us, etcd_messages.ETCD, etcd_messages.TwoOwners(what.same_rev))


@happens.register
def _(what: own.StuckTable, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield from _asked(Stick(what.table), event.at_us, scenario)
    if what.for_us is not None:
        yield from _asked(Stick(what.table, free=True), event.at_us + what.for_us, scenario)


@happens.register
def _(what: own.FreeTable, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield from _asked(Stick(what.table, free=True), event.at_us, scenario)


@happens.register
def _(what: own.Ddl, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield kernel.Ask(event.at_us, etcd_messages.ETCD, etcd_messages.Ddl(takes_us=what.takes_us))


@happens.register
def _(what: own.AddTable, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield kernel.Ask(event.at_us, etcd_messages.ETCD, etcd_messages.Ddl(add=(what.table,)))


@happens.register
def _(what: own.DropTable, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield kernel.Ask(event.at_us, etcd_messages.ETCD, etcd_messages.Ddl(drop=(what.table,)))


@happens.register
def _(what: own.MoveTable, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield from _asked(roles.MoveTable(what.table, what.to), event.at_us, scenario)


@happens.register
def _(what: own.Rebalance, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield from _asked(roles.Rebalance(), event.at_us, scenario)


@happens.register
def _(what: own.Drain, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    yield from _asked(roles.Drain(what.capture), event.at_us, scenario)


def _asked(command: Any, at_us: int, scenario: Scenario) -> Iterator[kernel.Fault]:
    """Ask every capture that is there: the one that owns, or has the table, does it; the others ignore it."""
    joined = [e.what.capture for e in scenario.events if isinstance(e.what, own.Join) and e.at_us < at_us]
    for capture in (*scenario.cluster.captures, *joined):
        yield kernel.Ask(at_us, capture, command)


def _pairs(cut: file.Partition, scenario: Scenario) -> list[tuple[str, str]]:
    joined = [e.what.capture for e in scenario.events if isinstance(e.what, own.Join)]
    known = (*scenario.cluster.captures, *joined, etcd_messages.ETCD)
    every = (*known, *sorted(scenario.cluster.nodes - set(known)))
    others = cut.from_ or tuple(n for n in every if n not in cut.nodes)
    return list(product(cut.nodes, others))
