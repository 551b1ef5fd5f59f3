"""What faults do to a world in motion."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ticdc_lab.simulate import faults as fault
from ticdc_lab.simulate.machine import Address, Exit, Fired, OnDisk
from ticdc_lab.simulate.network import RESEND
from ticdc_lab.simulate.queue import CALL, FAULT
from ticdc_lab.simulate.recorder import name_of

if TYPE_CHECKING:
    from ticdc_lab.simulate.kernel import Kernel

NEVER = 1 << 62
"""Until when the timers of a node that is down wait."""


def _join(kernel: Kernel, one: fault.Join) -> None:
    if one.node not in kernel.address:
        kernel.begin(one.node)


def _is_still_to_come(kernel: Kernel, node: str) -> bool:
    """Whether a node has not joined yet: nothing can happen to it."""
    return node in kernel.machines and node not in kernel.address


def _crash(kernel: Kernel, one: fault.Crash) -> None:
    if _is_still_to_come(kernel, one.node):
        return
    address = kernel.address[one.node]
    if address in kernel.down:
        if address in kernel.returning:  # it had ended by itself; now it stays down
            kernel.returning.discard(address)
            kernel.note(one.node, "crashed")
        return
    kernel.note(one.node, "crashed")
    kernel.down.add(address)
    kernel.paused[address] = NEVER  # its timers wait for a restart that keeps the state
    if kernel.post.traffic.network.transport != RESEND:
        for sender, to, message, identity in kernel.post.unheard.pop(address, []):
            kernel.post.lost(sender, to, message, identity, f"{to} is not there")
    if kernel.auditor:
        kernel.judge(address, kernel.auditor.went_down(kernel, address, kernel.states[address]))


def left(kernel: Kernel, address: Address, output: Exit) -> None:
    """Let a process that ended by itself come back."""
    node = kernel.node[address]
    kernel.note(node, "crashed", output.because)
    kernel.down.add(address)
    kernel.exited.add(address)
    kernel.paused[address] = NEVER
    if kernel.auditor:
        kernel.judge(address, kernel.auditor.went_down(kernel, address, kernel.states[address]))
    kernel.returning.add(address)
    kernel.put(kernel.now_us + output.after_us, CALL, lambda: _return(kernel, node, address))


def _return(kernel: Kernel, node: str, address: Address) -> None:
    if address in kernel.returning:
        _restart(kernel, fault.Restart(kernel.now_us, node))


def _restart(kernel: Kernel, one: fault.Restart) -> None:
    if _is_still_to_come(kernel, one.node):
        return
    address = kernel.address[one.node]
    if address not in kernel.down:
        return
    kernel.down.discard(address)
    kernel.returning.discard(address)
    kernel.paused.pop(address)
    kernel.note(one.node, "restarted", _found(kernel, one))
    if one.keep_state:
        _rearm(kernel, address)
        _up(kernel, address)
        return
    for sender, to, message, identity in kernel.post.unheard.pop(address, []):
        kernel.post.lost(sender, to, message, identity, f"{to} is gone")
    before = kernel.states.pop(address)
    kernel.lives[one.node] += 1
    kernel.begin(one.node, before, one.disk)


def _found(kernel: Kernel, one: fault.Restart) -> str:
    if one.keep_state:
        return "with its state"
    return f"its disk is {one.disk}" if isinstance(kernel.machines[one.node], OnDisk) else "without its state"


def _rearm(kernel: Kernel, address: Address) -> None:
    """Timers that came due while the node was down fire now."""
    waiting = sorted((e for e in kernel.queue if e[0] >= NEVER and e[3][0] == address), key=lambda e: e[1])
    if waiting:
        gone = {e[1] for e in waiting}
        kernel.queue[:] = [e for e in kernel.queue if e[1] not in gone]
        heapq.heapify(kernel.queue)
        for _, _, what, entry in waiting:
            kernel.timers[entry] = kernel.put(kernel.now_us, what, entry)


def _up(kernel: Kernel, address: Address) -> None:
    """Let the node look at its clock before it goes on."""
    kernel.take(address, Fired("resumed"))
    if kernel.auditor and not kernel.violation:
        kernel.judge(address, kernel.auditor.came_up(kernel, address, kernel.states[address]))
    kernel.post.heard_at_last(address)


def _pause(kernel: Kernel, one: fault.Pause) -> None:
    if _is_still_to_come(kernel, one.node):
        return
    address = kernel.address[one.node]
    until_us = kernel.now_us + one.for_us
    if kernel.paused.get(address, -1) >= until_us:
        return
    kernel.note(one.node, "paused", f"for {one.for_us / 1000:g} ms")
    kernel.paused[address] = until_us
    if kernel.auditor:
        kernel.judge(address, kernel.auditor.went_down(kernel, address, kernel.states[address]))
    kernel.put(until_us, CALL, lambda: _resume(kernel, one.node, address, until_us))


def _resume(kernel: Kernel, node: str, address: Address, until_us: int) -> None:
    if kernel.paused.get(address) == until_us and address not in kernel.down:
        del kernel.paused[address]
        kernel.note(node, "resumed")
        _up(kernel, address)


def _part(kernel: Kernel, one: fault.Part) -> None:
    pairs = [(one.a, one.b)] if one.one_way else [(one.a, one.b), (one.b, one.a)]
    cuts, own = kernel.post.traffic.cuts, [one]
    kernel.note(one.a, "parted", "one way" if one.one_way else "", one.b)
    for pair in pairs:
        cuts.setdefault(pair, []).append(own)
        kernel.post.traffic.parted[pair] = len(cuts[pair])
    if one.for_us is not None:
        kernel.put(kernel.now_us + one.for_us, CALL, lambda: _end_cut(kernel, one, pairs, own))


def _end_cut(kernel: Kernel, one: fault.Part, pairs: Sequence[tuple[str, str]], own: list[Any]) -> None:
    cuts = kernel.post.traffic.cuts
    lasting = [pair for pair in pairs if any(other is own for other in cuts.get(pair, ()))]  # the others were healed
    for pair in lasting:
        cuts[pair] = [other for other in cuts[pair] if other is not own]
    if lasting:
        _reopen(kernel, one.a, one.b, lasting)


def _heal(kernel: Kernel, one: fault.Heal) -> None:
    pairs = [p for p in ((one.a, one.b), (one.b, one.a)) if kernel.post.traffic.cuts.pop(p, None)]
    _reopen(kernel, one.a, one.b, pairs)


def _reopen(kernel: Kernel, a: str, b: str, pairs: Sequence[tuple[str, str]]) -> None:
    kernel.note(a, "healed", peer=b)
    for pair in pairs:
        kernel.post.traffic.parted[pair] = len(kernel.post.traffic.cuts.get(pair, ()))
        if not kernel.post.traffic.parted[pair]:
            for sender, to, message, identity in kernel.post.held.pop(pair, []):
                if kernel.address[kernel.node[sender]] != sender or sender in kernel.exited:
                    kernel.post.lost(sender, to, message, identity, f"{sender}, which would send it again, is gone")
                else:
                    kernel.post.travel(pair, sender, to, message, identity)


def _refuse(kernel: Kernel, one: fault.Refuse) -> None:
    kernel.note(one.a, "refused", f"no message to {one.b} for {one.for_us / 1000:g} ms", one.b)
    kernel.post.traffic.refused[one.a, one.b] += 1
    _set_refusals(kernel, one.a)
    kernel.put(kernel.now_us + one.for_us, CALL, lambda: _accept(kernel, one))


def _accept(kernel: Kernel, one: fault.Refuse) -> None:
    kernel.post.traffic.refused[one.a, one.b] -= 1
    _set_refusals(kernel, one.a)


def refuse_still(kernel: Kernel, node: str) -> None:
    """Let refusals from and to a node hold for the address of its new life."""
    for a in sorted({a for a, b in kernel.post.traffic.refused if node in (a, b)}):
        _set_refusals(kernel, a)


def _set_refusals(kernel: Kernel, node: str) -> None:
    if node not in kernel.address:
        return
    peers = [b for (a, b), n in kernel.post.traffic.refused.items() if a == node and n]
    kernel.refusals[kernel.address[node]] = frozenset(kernel.address.get(b, b) for b in peers)


def _relink(kernel: Kernel, one: fault.Relink) -> None:
    own = [one.link]
    kernel.post.traffic.relinks.setdefault((one.a, one.b), []).append(own)
    _set_link(kernel, (one.a, one.b))
    if one.for_us is not None:
        kernel.put(kernel.now_us + one.for_us, CALL, lambda: _unlink(kernel, (one.a, one.b), own))


def _unlink(kernel: Kernel, pair: tuple[str, str], own: list[Any]) -> None:
    relinks = kernel.post.traffic.relinks
    relinks[pair] = [other for other in relinks[pair] if other is not own]  # equal ones may overlap
    _set_link(kernel, pair)


def _set_link(kernel: Kernel, pair: tuple[str, str]) -> None:
    """Let the latest of those that last be in force, and without any what the network says."""
    traffic = kernel.post.traffic
    lasting = traffic.relinks[pair]
    if lasting:
        traffic.links[pair] = lasting[-1][0]
    else:
        traffic.links.pop(pair, None)
        traffic.links.update((p, link) for p, link in traffic.network.links if p == pair)


def _lose(kernel: Kernel, one: fault.Lose) -> None:
    kernel.post.losing.append([one, one.times])


def _skew(kernel: Kernel, one: fault.Skew) -> None:
    kernel.skews[one.node] = (one.offset_us, one.drift_ppm, kernel.now_us)


def _ask(kernel: Kernel, one: fault.Ask) -> None:
    if _is_still_to_come(kernel, one.node):
        kernel.note(one.node, "lost", f"{one.node} has not joined when it is asked for {name_of(one.command)}")
        return
    address = kernel.address[one.node]
    if address in kernel.down:
        kernel.note(one.node, "lost", f"{one.node} is down when it is asked for {name_of(one.command)}")
    elif address in kernel.paused:
        kernel.put(kernel.paused[address], FAULT, one)
    else:
        kernel.ask(one.node, one.command)


MISHAPS: Mapping[type, Callable[[Any, Any], None]] = MappingProxyType(
    {
        fault.Join: _join,
        fault.Crash: _crash,
        fault.Restart: _restart,
        fault.Pause: _pause,
        fault.Part: _part,
        fault.Heal: _heal,
        fault.Refuse: _refuse,
        fault.Relink: _relink,
        fault.Lose: _lose,
        fault.Skew: _skew,
        fault.Ask: _ask,
    }
)
"""What carries out each fault."""
