"""The schedulers of a maintainer, one after the other: drain, basic, balance."""

from __future__ import annotations

from dataclasses import replace

from ticdc_lab.simulate.machine import Decided, Now, Output
from ticdc_lab.simulate.scheduler.v4 import balance, basic, drain_scheduler
from ticdc_lab.simulate.scheduler.v4.nodes import MaintainerState, Stepped
from ticdc_lab.simulate.scheduler.v4.settings import Settings


def run(state: MaintainerState, settings: Settings, now: Now) -> Stepped:
    """Let each scheduler begin what it can; why one does nothing is told when the reason is a new one."""
    control, drain, outputs = drain_scheduler.drained(
        state.control, state.drain, state.address, settings.batch_size, now.prefer, now.at_us
    )
    target = drain_scheduler.active(drain)
    control, more = basic.placed(control, settings, target, now.prefer, now.at_us)
    state, outputs = replace(state, control=control, drain=drain), outputs + more
    if target is not None:
        state = replace(state, balance_blocked_us=now.at_us + settings.balance_cooldown_us)
    elif now.at_us >= state.balance_due_us and now.at_us >= state.balance_blocked_us:
        control, more = balance.balanced(state.control, settings.batch_size, now.prefer, now.at_us)
        busy = any(isinstance(output, Decided) and output.chosen is None for output in more)
        due_us = state.balance_due_us if busy and control.running else now.at_us + settings.balance_interval_us
        state, outputs = replace(state, control=control, balance_due_us=due_us), outputs + more
    return _said_once(state, outputs)


def drain_ended(state: MaintainerState) -> MaintainerState:
    """The drained node has left: there is no target any more."""
    return replace(state, drain=drain_scheduler.targeted(state.drain, None, state.drain.epoch))


def _said_once(state: MaintainerState, outputs: list[Output]) -> Stepped:
    said, kept = state.said, list[Output]()
    for output in outputs:
        if isinstance(output, Decided):
            text = output.because if output.chosen is None else ""
            if text and said.get(output.subject) == text:
                continue
            if not output.subject.startswith("span:"):
                said = said.set(output.subject, text)
        kept.append(output)
    return replace(state, said=said), kept
