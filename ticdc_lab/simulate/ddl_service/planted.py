"""Two planted bugs of a worker: what Go programs keep in static fields is one for all owners of a process."""

from __future__ import annotations

from immutables import Map

from ticdc_lab.simulate.ddl_service import keys
from ticdc_lab.simulate.ddl_service.owner import OwnerState, values
from ticdc_lab.simulate.ddl_service.settings import Duties
from ticdc_lab.simulate.ddl_service.store_messages import Put, Txn
from ticdc_lab.simulate.machine import Output, Send


def statics(owners: Map[str, OwnerState], duties: Duties) -> Map[str, str] | None:
    """Give the variables that all owners of a process read: those that the last of them has loaded."""
    if "shares variables" not in duties.bugs:
        return None
    found: Map[str, str] = Map()
    for _, own in sorted(owners.items()):
        if own.link.mirror is not None:
            found = found.update(values(own.link.mirror.under(keys.SYSVARS)))
    return found


def misdirected(owners: Map[str, OwnerState], duties: Duties, outputs: list[Output]) -> list[Output]:
    """Let the one infosyncer of the process, that of its first owner, write what is for GC of every cluster."""
    if "shares the infosyncer" not in duties.bugs:
        return outputs
    first = owners[min(owners)].link
    found: list[Output] = []
    for output in outputs:
        if isinstance(output, Send) and isinstance(output.message, Txn) and output.to != first.store:
            put = output.message.ops[0]
            if isinstance(put, Put) and put.key.startswith(keys.MIN_START_TS):
                own = Txn(output.message.tag, (), (put._replace(lease=first.lease),))
                found.append(Send(first.store, own))
                continue
        found.append(output)
    return found
