"""Real messages of every codec with bytes changed: each is decoded or in quarantine, once, and nothing is unforeseen.

In the suite from fixed seeds, under ``soak`` for ``SOAK_SECONDS`` from ``SOAK_SEED``; what ever failed stays in
:data:`FAILED_ONCE`. A failure prints the command that repeats it.
"""

from __future__ import annotations

from functools import cache, partial
from itertools import islice
from random import Random

import pytest
import reference_decoder as oracle
import torture
from formats import TOPICS, decoded_by, messages
from making import MAKERS, Message, broken, lied
from soaking import soak, tried
from test_bad_formats import row_of, survived
from test_canal import OFFICIAL
from test_fuzz import some_golden
from test_maxwell import ddl, row
from test_mq_v1 import ROW, value

from ticdc_lab.codecs import Known
from ticdc_lab.codecs.registry import CODECS

FILE = "tests/codecs/test_mutations.py"

_DEBEZIUM = (
    b'{"payload":{"source":{"commit_ts":5,"db":"s","table":"t"},"op":"c","after":{"a":%s}},"schema":{"fields":[{"field":'
    b'"after","fields":[{"field":"a","tidb_type":"%s","name":"%s"}]}]}}'
)
FAILED_ONCE: dict[str, tuple[str, Message]] = {
    "an object as a ZonedTimestamp ended the load": (
        "debezium", (None, _DEBEZIUM % (b"{}", b"timestamp", b"io.debezium.time.ZonedTimestamp"))),
    "a list as a ZonedTimestamp ended the load": (
        "debezium", (None, _DEBEZIUM % (b"[]", b"timestamp", b"io.debezium.time.ZonedTimestamp"))),
    "true as a MicroTimestamp became 1970": (
        "debezium", (None, _DEBEZIUM % (b"true", b"datetime", b"io.debezium.time.MicroTimestamp"))),
    "1_0 as a DOUBLE became 10": ("debezium", (None, _DEBEZIUM % (b'"1_0"', b"double", b""))),
    "26 nines as a BIGINT became 1e26": ("debezium", (None, _DEBEZIUM % (b"9" * 26, b"bigint", b""))),
    "abc stood in an INT": ("debezium", (None, _DEBEZIUM % (b'"abc"', b"int", b""))),
    "of a name that stood twice the last counted": ("maxwell", (None, row()[:-1] + b',"ts":5}')),
}  # fmt: skip
"""What happened once, and the message that did it."""


@pytest.mark.parametrize("case", FAILED_ONCE)
def test_what_failed_once_is_in_quarantine(case: str) -> None:
    """Each with a class of its own, and the messages beside it are decoded."""
    protocol, bad = FAILED_ONCE[case]
    good = real(protocol)[0]
    first, found, last = decoded_by([row_of(*m, offset=i) for i, m in enumerate((good, bad, good))], protocol, Known())
    if first["error_class"] is None and last["error_class"] is not None:  # the ones of the quarantine come last
        found, last = last, found
    assert found["error_class"] not in (None, "codec-error") and found["value"] == bad[1]
    assert (first["error_class"], last["error_class"]) == (None, None)


@cache
def real(protocol: str) -> tuple[Message, ...]:
    """Some messages that TiCDC wrote, or could have written."""
    if protocol in MAKERS:
        return tuple(some_golden(protocol)[::3])
    if protocol == "maxwell":
        return (b"k", row()), (b"k", row("update", old={"col1": 1.5}) + row()), (b"k", ddl("table-create"))
    if protocol == "mq-v1":
        types = {
            "Tiny": 7,
            "Longlong": 2**64 - 1,
            "Double": 1.5,
            "Varchar": "x",
            "Blob": "eA==",
            "Datetime": "2020-01-01",
        }
        cells = [{"type": kind, "unique": True, "value": v} for kind, v in types.items()]
        return (*((ROW, value(cell)) for cell in cells), (ROW, value(cells[0], "delete")))
    if protocol == "debezium-avro":
        some = torture.messages(protocol).to_pylist()[::29]
        return tuple((m["key"], m["value"]) for m in some)
    files = [t.file for t in TOPICS if t.protocol == protocol]
    whole = oracle.messages(OFFICIAL) if protocol == "canal" else (m for file in files for m in messages(file))
    return tuple((m["key"], m["value"]) for m in islice(whole, 0, None, 41))


def mutated(protocol: str, seed: int, n: int) -> int:
    """Break ``n`` messages and decode them together."""
    r = Random(f"{protocol}{seed}")
    survived(protocol, [(broken if r.random() < 0.9 else lied)(r.choice(real(protocol)), r) for _ in range(n)])
    return n


@pytest.mark.parametrize("protocol", sorted(CODECS))
@pytest.mark.parametrize("seed", range(3))
def test_mutated_messages_are_decoded_or_in_quarantine(protocol: str, seed: int) -> None:
    """Flipped bits, cuts, odd tokens, huge lengths, parts repeated and moved, types that MySQL does not have."""
    tried(FILE, protocol, seed, partial(mutated, protocol, n=150))


def test_a_failure_prints_the_command_that_repeats_it() -> None:
    """With the seed that failed."""

    def failing(seed: int) -> int:
        raise AssertionError("lost a message")

    with pytest.raises(AssertionError, match=rf"SOAK_SEED=7 .* -m soak {FILE} -k csv\nlost a message"):
        tried(FILE, "csv", 7, failing)


@pytest.mark.soak
@pytest.mark.parametrize("protocol", sorted(CODECS))
def test_soak_mutated_messages(protocol: str) -> None:
    """The same for as long as ``SOAK_SECONDS`` shows (60)."""
    soak(FILE, protocol, partial(mutated, protocol, n=500))
