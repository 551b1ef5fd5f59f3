"""Rows of one table, alike except for some bytes: what a kernel takes over from the types and rows before is right."""

from __future__ import annotations

from random import Random

import pytest
from comparing import by_kernel, difference
from making import Message, broken
from test_plain import assert_same

LONG = "n" * 40
COLUMNS = [
    ("id", "bigint"), ("a", "varchar"), ("ab", "varchar(40)"), (LONG, "text"), ("數", "int unsigned"), ("d", "decimal"),
    ("f", "float"), ("g", "double"), ("b", "varbinary"), ("t", "datetime"), ("e", "enum"), ("y", "tinyint"),
]  # fmt: skip
VALUES = {
    "bigint": ["0", "-9223372036854775808", "18446744073709551616", "1x"],
    "int unsigned": ["7", "-1", "4294967296", ""],
    "tinyint": ["1", "255", "256", "-129"],
    "decimal": ["1.50", ".", "-0.1", "1,5"],
    "float": ["61.20000076293945", "1e3"],
    "double": ["0.1", "1e400"],
    "varbinary": ["\\u0001\\u00ff", "ab", "é"],
    "enum": ["1", "a"],
    "datetime": ["2020-01-01 00:00:00", "2020-13-01", "0000-00-00 00:00:00.123456"],
}
TEXTS = ["", "x", "y" * 30, "y" * 31, "y" * 32, "y" * 33, "z" * 100, "數" * 9, "\\n", 'a\\"b', "null", ","]


def member(name: str, value: str | None, r: Random) -> str:
    """One as TiCDC writes it, and seldom as another encoder would."""
    if r.random() < 0.02:
        name = "".join(f"\\u{ord(c):04x}" for c in name)
    gap = r.choice(("", " ", "\n")) if r.random() < 0.02 else ""
    return f'{gap}"{name}"{gap}:{gap}' + ("null" if value is None else f'"{value}"') + gap


def image(columns: list[tuple[str, str]], r: Random) -> str:
    """The values of columns, most often all in order."""
    some = [c for c in columns if r.random() < 0.5] if r.random() < 0.3 else [*columns]
    if r.random() < 0.05:
        r.shuffle(some)
    if some and r.random() < 0.03:
        some.append(r.choice(some))
    if r.random() < 0.02:
        some.insert(r.randrange(len(some) + 1), ("other", "int"))
    values = [None if r.random() < 0.1 else value_of(kind, r) for _, kind in some]
    return "{" + ",".join(member(n, v, r) for (n, _), v in zip(some, values, strict=True)) + "}"


def value_of(kind: str, r: Random) -> str:
    """One that fits, except for some."""
    some = VALUES.get(kind, TEXTS)
    return some[0] if r.random() < 0.95 else r.choice(some)


def row_change(columns: list[tuple[str, str]], r: Random) -> Message:
    """A row change of the table."""
    op = r.choice(("INSERT", "UPDATE", "DELETE"))
    images = [image(columns, r) for _ in range(r.choice((1, 1, 1, 2)))]
    old = f"[{','.join(image(columns, r) for _ in images)}]" if op == "UPDATE" else "null"
    first = r.choice((0, r.randrange(len(columns))))  # Go begins to write a small map anywhere
    types = ",".join(f'"{n}":"{kind}"' for n, kind in columns[first:] + columns[:first])
    codes = ",".join(f'"{n}":{i}' for i, (n, _) in enumerate(columns))
    text = (
        f'{{"id":0,"database":"s","table":"t","pkNames":["{columns[0][0]}"],"isDdl":false,"type":"{op}","es":1,"ts":2,'
        f'"sql":"","sqlType":{{{codes}}},"mysqlType":{{{types}}},"old":{old},"data":[{",".join(images)}],'
        f'"_tidb":{{"commitTs":{r.randrange(1, 1 << 60)}}}}}'
    )
    return None, text.encode()


def rows(r: Random) -> list[Message]:
    """Of one table, whose definition seldom changes; a tenth of the messages is broken somewhere."""
    some, columns = list[Message](), COLUMNS
    for _ in range(60):
        if r.random() < 0.1:
            columns = r.sample(COLUMNS, r.randrange(1, len(COLUMNS) + 1))
        message = row_change(columns, r)
        some.append(broken(message, r) if r.random() < 0.1 else message)
    return [m for m in some if m[1] is not None]


@pytest.mark.parametrize("seed", range(25))
def test_rows_that_differ_in_some_bytes_decode_as_each_alone(seed: int) -> None:
    """Columns left out, in another order, there twice, unknown; escapes, gaps, NULL, values that no column can have."""
    some = rows(Random(seed))
    found = by_kernel(some, "canal-json")
    for message, decoded in zip(some, found, strict=True):
        assert not difference(message, "canal-json", decoded), message[1]
    assert_same(some, "canal-json")  # hashes, and the words of faults, too
    assert 20 < sum(isinstance(decoded, list) for decoded in found) < len(some)


@pytest.mark.parametrize(
    "types",
    [
        '"a":"varchar","b":"int","id":"bigint"', '"b":"int","id":"bigint","a":"varchar"',
        '"b":"int","a":"varchar","id":"bigint"', '"a":"varchar","b":"bit","id":"bigint"',
        '"a":"varchar","b":"int","id":"binary"', '"a":"varchar","b":"int";"id":"bigint"',
        '"a":"varchar","b":"int","a":"bigint"', '"a":"varchar","b":"int","id":"bigint]',
        '"a":"varchar","b":"int" "id":"bigint"', ' a":"varchar","b":"int","id":"bigint"',
    ],
)  # fmt: skip
@pytest.mark.parametrize("first", ['"id":"bigint","a":"varchar","b":"int"', '"id":"bigint", "a":"varchar","b":"int"'])
def test_types_of_the_message_before_are_taken_over_only_where_these_are_they(first: str, types: str) -> None:
    """They may begin with another of them; a byte that differs makes others of them, or none."""
    row = '{"id":0,"database":"s","table":"t","pkNames":["id"],"isDdl":false,"type":"INSERT","es":1,"ts":2,"sql":"",'
    row += '"sqlType":{},"mysqlType":{TYPES},"old":null,"data":[{"id":"1","a":"x","b":"2"}],"_tidb":{"commitTs":5}}'
    some: list[Message] = [(None, row.replace("TYPES", text).encode()) for text in (first, types, first, types)]
    for message, decoded in zip(some, by_kernel(some, "canal-json"), strict=True):
        assert not difference(message, "canal-json", decoded), message[1]
    assert_same(some, "canal-json")
