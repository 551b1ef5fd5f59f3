"""A DDL as the dispatchers of a node see it (downstreamadapter/dispatcher, ``dealWithBlockEvent``).

All of them stop one below it and report to the maintainer, until that is acknowledged; on the maintainer's node the
DDL dispatcher stops there too. Ordered to write, it has the DDL executed; ordered to pass, all resume and report it.
Where an order or an answer is lost the maintainer's next one is answered likewise.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from ticdc_lab.machines.machine import Address, Changed, Ignored, Output, Send
from ticdc_lab.simulate.scheduler.etcd_messages import ETCD, ExecuteDdl
from ticdc_lab.simulate.scheduler.executor import REPLICATING, Executor, checkpoint_of, state_of
from ticdc_lab.simulate.scheduler.roles import Key
from ticdc_lab.simulate.scheduler.v4.messages import (
    DDL_DISPATCHER,
    BlockStatusRequest,
    HeartBeatResponse,
    InfluencedTables,
    State,
    TableSpanBlockStatus,
)
from ticdc_lab.simulate.scheduler.v4.spans import position

REPORT_US = 1_000_000
EVERY_TABLE = InfluencedTables("All")
Stage = Literal["WAITING", "DONE"]


class Block(NamedTuple):
    """What a node knows of DDLs."""

    block_ts: int | None = None  # the one at which its dispatchers are, None without one
    executed: bool = False  # whether that is downstream, by etcd
    passed_ts: int = 0  # the last that they have passed
    writes: bool = False  # whether the DDL dispatcher here was ordered to write
    acked: frozenset[Key] = frozenset()  # dispatchers whose report the maintainer has
    # Those that were reported to it, and when last.
    reported: frozenset[Key] = frozenset()
    reported_us: int = -REPORT_US

    def limit_ts(self, limit_ts: int) -> int:
        """Give up to where dispatchers may write: below a DDL at which they stand, and beyond one that they passed."""
        if self.block_ts is not None:
            return min(limit_ts, self.block_ts - 1)
        return max(limit_ts, self.passed_ts + 1) if self.passed_ts else limit_ts


Stepped = tuple[Block, list[Output]]


def told(
    block: Block, barrier_ts: int | None, executed_ts: int, executor: Executor, home_ts: int | None = None
) -> Block:
    """Take the DDL that etcd has now: a new one, or none any more because it was executed.

    A dispatcher that begins below one that is executed meets it again; so does the DDL dispatcher, which begins where
    the changefeed's checkpoint is (``home_ts``, None where it is not here), or the others would wait for it.
    """
    if block.passed_ts < executed_ts and (block.block_ts is None or executed_ts < block.block_ts):
        below = home_ts is not None and home_ts < executed_ts
        if below or any(p.start_ts < executed_ts for p in executor.pipelines.values()):
            return Block(executed_ts, executed=True, passed_ts=block.passed_ts)
    if block.block_ts is not None:
        return block._replace(executed=block.executed or barrier_ts != block.block_ts)
    if barrier_ts is None or barrier_ts <= block.passed_ts:
        return block
    return Block(barrier_ts, passed_ts=block.passed_ts)


def forgotten(block: Block) -> Block:
    """Report everything again: another maintainer has begun."""
    return block._replace(writes=False, acked=frozenset(), reported=frozenset())


def replicating(executor: Executor, is_home: bool) -> list[Key]:
    """Give the dispatchers of a node; where the maintainer is, its own among them."""
    there = (key for key in executor.pipelines if state_of(executor, key) == REPLICATING)
    return [*([DDL_DISPATCHER] if is_home else []), *sorted(there, key=position)]


def standing(block: Block, executor: Executor, is_home: bool, at_us: int) -> list[Key]:
    """Give the ones that are at the DDL."""
    if block.block_ts is None:
        return []
    block_ts = block.block_ts
    found = replicating(executor, is_home)
    return [k for k in found if k == DDL_DISPATCHER or checkpoint_of(executor, k, at_us) >= block_ts - 1]


def reports(block: Block, maintainer: Address | None, keys: Iterable[Key], at_us: int) -> Stepped:
    """Report those that have come to it, and once a second all that were not acknowledged."""
    unknown = [key for key in keys if key not in block.acked]
    if at_us - block.reported_us < REPORT_US:
        unknown = [key for key in unknown if key not in block.reported]
    if not unknown or maintainer is None:
        return block, []
    after = block._replace(reported=block.reported | set(unknown), reported_us=at_us)
    return after, [_said(block, maintainer, unknown, "WAITING")]


def states_of(block: Block, keys: Iterable[Key]) -> tuple[TableSpanBlockStatus, ...]:
    """Give what a maintainer that begins has to know: who is at a DDL, and whether it is being written."""
    return tuple(_status(block, key, "WAITING") for key in keys if key != DDL_DISPATCHER)


def answered(block: Block, sender: Address, response: HeartBeatResponse, keys: list[Key], at_us: int) -> Stepped:
    """Take acknowledgements, and orders to write or to pass."""
    outputs: list[Output] = []
    for status in response.dispatcher_statuses:
        named = status.influenced_dispatchers
        if status.ack is not None and status.ack.commit_ts == block.block_ts:
            block = block._replace(acked=block.acked | set(named.dispatcher_ids))
        order = status.action
        if order is None:
            continue
        if order.action == "Write" and order.commit_ts == block.block_ts:
            block = block._replace(writes=True)
            outputs += _written(block, sender) if block.executed else [Send(ETCD, ExecuteDdl(order.commit_ts))]
        elif order.action == "Pass" and order.commit_ts <= max(block.block_ts or 0, block.passed_ts):
            others = [key for key in keys if key != named.exclude_dispatcher_id]
            if order.commit_ts == block.block_ts:
                outputs.append(Changed("block-event", block.block_ts, None, "it is written: all pass"))
                block = Block(passed_ts=order.commit_ts)
            if others:
                done = block._replace(block_ts=order.commit_ts)
                outputs.append(_said(done, sender, others, "DONE"))
        else:
            outputs.append(Ignored(response, f"the DDL of {order.commit_ts} is not the one at which it stands"))
    return block, outputs


def written(block: Block, maintainer: Address | None) -> Stepped:
    """Report that the DDL is executed, once it is."""
    if not (block.writes and block.executed) or maintainer is None:
        return block, []
    return block._replace(writes=False), _written(block, maintainer)


def _written(block: Block, maintainer: Address) -> list[Output]:
    return [_said(block, maintainer, [DDL_DISPATCHER], "DONE")]


def _said(block: Block, to: Address, keys: Iterable[Key], stage: Stage) -> Send:
    return Send(to, BlockStatusRequest(tuple(_status(block, key, stage) for key in keys)))


def _status(block: Block, key: Key, stage: Stage) -> TableSpanBlockStatus:
    return TableSpanBlockStatus(key, State(True, block.block_ts or 0, EVERY_TABLE, stage=stage))
