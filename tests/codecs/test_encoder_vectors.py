"""Logs that the real encoders wrote of each type at its ends and of odd names: every cell is what was put in."""

from __future__ import annotations

import base64
from collections import Counter
from pathlib import Path

import pytest
import torture

from ticdc_lab.codecs.known import Known
from ticdc_lab.codecs.unpack import unpacker

FOLDER = Path(__file__).parents[1] / "data/vectors"
LOGS = [("open-protocol", 1766), ("canal-json", 1766), ("simple", 1766), ("avro", 1734)]
"""Protocols, and row changes of 1,766 that the encoder takes."""


@pytest.mark.parametrize(("protocol", "rows"), LOGS)
def test_each_cell_is_what_was_put_in(protocol: str, rows: int) -> None:
    """No message is refused, and no value is another one."""
    batch, beside = torture.messages(protocol, folder=FOLDER), torture.known(protocol, FOLDER)
    found = torture.decoded(protocol, batch, beside)
    assert [e["reason"] for e in found if e["error_class"]] == []
    assert sum(e["kind"] == "row" for e in found) == rows
    in_avro = protocol == "avro"
    assert torture.wrong(found, "vectors", lossy=in_avro, in_avro=in_avro, folder=FOLDER) == []


def test_each_row_of_a_message_has_its_own_claim_check(tmp_path: Path) -> None:
    """TiCDC batches rows of open-protocol also where each is under a claim check."""
    for claim in torture.read("claims", FOLDER):
        (tmp_path / claim["name"]).write_bytes(base64.b64decode(claim["content"]))
    batch, beside = torture.messages("open-protocol-claims", folder=FOLDER), Known(claim_check=str(tmp_path))

    def found() -> list[torture.Event]:
        return torture.decoded("open-protocol", unpacker("open-protocol", beside)(batch), beside)

    whole = found()
    assert torture.wrong(whole, "vectors", folder=FOLDER) == []
    assert {e["incomplete"] for e in whole} == {None}
    assert max(Counter((e["partition"], e["offset"]) for e in whole).values()) > 1

    (tmp_path / next(iter(torture.read("claims", FOLDER)))["name"]).unlink()
    assert Counter(e["incomplete"] for e in found()) == {None: len(whole) - 1, "claim-check-missing": 1}
