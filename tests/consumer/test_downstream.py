"""The downstream's rows at a moment: what was written last stays, a key that changes moves its row."""

from __future__ import annotations

import pandas as pd

from ticdc_lab.consumer.downstream import downstream_at

TSO = 450_000_000_000_000_001


def deliveries(*rows: tuple[int, int | None, int | None, int, int | None], table: str = "s.t") -> pd.DataFrame:
    """(offset, key, key before, rank, applied at): applied in this order; None is not applied."""
    frame = pd.DataFrame(rows, columns=["offset", "key_hash", "before_key_hash", "op_rank", "applied_at"], dtype=object)
    whole = dict.fromkeys(("key_hash", "before_key_hash", "applied_at"), "Int64") | {"offset": int, "op_rank": int}
    place = {"topic": "t", "partition": 0, "seq": 0, "table": table, "commit_ts": TSO}
    return frame.astype(whole).assign(**place, apply_order=pd.array(range(len(rows)), "Int64"))


PLACES = pd.MultiIndex.from_product([["t"], [0], range(6), [0]], names=["topic", "partition", "offset", "seq"])
IMAGES = pd.DataFrame({"v": list("abcdef"), "w": None}, index=PLACES)
DELETE, UPDATE, INSERT = range(3)


def at(frame: pd.DataFrame, us: int, table: str = "s.t") -> list[str]:
    """Values of the rows, the newest first."""
    return downstream_at(IMAGES, frame, us, table)["v"].tolist()


def test_rows_come_change_and_go_with_time() -> None:
    """Insert 1 and 2, update 1, delete 2."""
    frame = deliveries(
        (0, 1, None, INSERT, 10), (1, 2, None, INSERT, 20), (2, 1, None, UPDATE, 30), (3, 2, None, DELETE, 40)
    )
    assert [at(frame, us) for us in (9, 10, 20, 30, 40)] == [[], ["a"], ["b", "a"], ["c", "b"], ["c"]]


def test_an_update_of_the_key_takes_the_old_row_away() -> None:
    """Also where another row had the new key's place, and where the old key comes back."""
    frame = deliveries((0, 1, None, INSERT, 10), (1, 2, 1, UPDATE, 20), (2, 1, None, INSERT, 30))
    assert [at(frame, us) for us in (10, 20, 30)] == [["a"], ["b"], ["c", "b"]]


def test_what_is_not_applied_is_not_there() -> None:
    """Pending, dropped and filtered rows, and the ones of other tables."""
    frame = pd.concat([deliveries((0, 1, None, INSERT, None)), deliveries((1, 1, None, INSERT, 5), table="s.u")])
    assert at(frame, 100) == []
    assert at(frame, 100, "s.u") == ["b"]


def test_rows_without_key_stand_for_themselves() -> None:
    """Each insert is a row; a TSO keeps its digits; columns without any value are left out."""
    frame = deliveries((0, None, None, INSERT, 1), (1, None, None, INSERT, 2), (2, None, None, DELETE, 3))
    found = downstream_at(IMAGES, frame, 9, "s.t")
    assert found["v"].tolist() == ["b", "a"]
    assert list(found.columns) == ["commit_ts", "v"]
    assert found["commit_ts"].tolist() == [TSO, TSO]


def test_a_table_may_have_columns_called_like_a_place() -> None:
    """Its values are shown, no matter what they are called."""
    named = IMAGES.rename(columns={"v": "seq"}).assign(commit_ts="mine")
    found = downstream_at(named, deliveries((0, 1, None, INSERT, 1)), 9, "s.t")
    assert found.to_numpy().tolist() == [[TSO, "a", "mine"]]
    assert list(found.columns) == ["_commit_ts", "seq", "commit_ts"]


def test_rows_whose_values_were_not_brought_are_counted() -> None:
    """An excerpt of the images may end early."""
    frame = deliveries((0, 1, None, INSERT, 1), (5, 2, None, INSERT, 2))
    found = downstream_at(IMAGES.iloc[:5], frame, 9, "s.t")
    assert len(found) == 2 and found["v"].isna().tolist() == [True, False]
