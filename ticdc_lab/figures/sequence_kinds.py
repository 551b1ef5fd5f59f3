"""Kinds of messages in a sequence diagram: whose they are, how they are numbered, how several at once are one arrow."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

PROTOCOL = ("Announce", "Sync", "DispatchTable", "DispatchTableResponse", "Checkpoint")
"""The design's messages, in its order; they look the same everywhere, and others come after them."""

REPORTS = frozenset({"Checkpoint", "Heartbeat", "HeartbeatResponse", "HeartBeatRequest", "HeartBeatResponse"})
"""What is sent all the time."""

OWNERS_SIDE = frozenset(
    {
        "Announce", "DispatchTable", "DispatchTableRequest", "Heartbeat", "MaintainerBootstrapRequest",
        "ScheduleDispatcherRequest", "MergeDispatcherRequest", "HeartBeatResponse",
    }
)  # fmt: skip
"""Messages that an owner of any protocol sends; it receives all others."""

_FEW = 4
"""Tables up to which a name lists them."""


def numbers(shown: pd.DataFrame) -> npt.NDArray[np.int64]:
    """Number messages as they were sent, at the same moment in the order of the protocol."""
    kinds = shown["message"].map({message: i for i, message in enumerate(PROTOCOL)}).fillna(len(PROTOCOL))
    place = np.lexsort((shown["sent_step"], kinds, shown["sent_us"]))
    return np.argsort(place) + 1


def together(texts: pd.Series) -> str:
    """One name for messages of a kind: with the few tables they are about, or their number."""
    first = str(texts.iloc[0])
    if len(texts) == 1:
        return first
    about = [str(t).partition(" ")[2] for t in texts]
    few = len(texts) <= _FEW and all(about)
    return f"{first.partition(' ')[0]} {', '.join(about)}" if few else f"{first.partition(' ')[0]} ×{len(texts)}"


def unfinished(told: pd.DataFrame) -> pd.DataFrame:
    """Arrows that do not arrive fan out, so that those of one moment do not lie on each other."""
    way = told["fate"] == "on its way"
    told.loc[way, "y1"] += 0.3 + 0.7 * told[way].groupby(["x0", "x1", "y0"]).cumcount()
    return told
