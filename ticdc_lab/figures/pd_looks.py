"""How stores, peers and operators look in the pictures of PD: the same colours in all of them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ticdc_lab.figures.theme import GREY, OKABE_ITO, WRONG

BLUE, ORANGE, GREEN, PINK, SKY, RED, OLIVE = OKABE_ITO

PEER_LOOK: Mapping[str, tuple[str, str, str]] = MappingProxyType({
    "leader": (BLUE, "rgba(255,255,255,0.45)", ""),
    "follower": ("rgba(86,180,233,0.22)", BLUE, ""),
    "learner": ("rgba(0,158,115,0.22)", GREEN, "."),
    "pending": ("rgba(230,159,0,0.25)", ORANGE, "/"),
    "down": ("rgba(213,94,0,0.18)", WRONG, "x"),
})  # fmt: skip
"""Fill, outline and hatch of each kind of peer."""

_KINDS = (
    ("balance-leader", SKY, ""), ("balance-region", BLUE, ""), ("move-to-better", GREEN, "."),
    ("replace-rule-offline-leader", PINK, "/"),
    ("replace", RED, "/"), ("add-rule", PINK, "x"), ("make-up", PINK, "x"), ("remove", OLIVE, "-"),
    ("merge", ORANGE, "+"), ("move-hot", ORANGE, "/"), ("transfer-hot", ORANGE, "|"), ("admin", GREY, "|"),
    ("evict", PINK, "\\"), ("grant", GREEN, "\\"),
)  # fmt: skip


def kind_look(desc: str) -> tuple[str, str]:
    """Give colour and hatch of an operator by its description."""
    return next(((color, hatch) for start, color, hatch in _KINDS if desc.startswith(start)), (GREY, "+"))


def kind_name(desc: str) -> str:
    """Give an operator's description without what all of them have."""
    return desc.removesuffix("-scheduler")


def pattern(color: str, hatch: str) -> dict[str, Any]:
    """Give the marker of bars of a colour with a hatch as second channel."""
    lines = {"shape": hatch, "fillmode": "overlay", "fgcolor": "rgba(255,255,255,0.7)", "size": 7, "solidity": 0.2}
    return {"color": color, "line": {"width": 0}, "pattern": lines}
