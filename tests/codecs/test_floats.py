"""Floats: TiCDC writes them in two forms, the events contract knows one, and no digit is lost between them."""

from __future__ import annotations

import json
from decimal import Decimal

import numpy as np
import pytest
from comparing import by_kernel
from hypothesis import given, settings
from hypothesis import strategies as st

doubles = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=40)
singles = st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1, max_size=40)


def shortest(x: float, *, single: bool = False) -> Decimal:
    """The shortest decimal that reads back as the same double or float."""
    return Decimal(str(np.float32(x)) if single else repr(x))


def go_f(d: Decimal) -> str:
    """Go's ``strconv.FormatFloat(x, 'f', -1, bits)``: no exponent, ever (canal-json)."""
    return f"{d:f}".removesuffix(".0") if "." in f"{d:f}" else f"{d:f}"


def go_json(d: Decimal) -> str:
    """Go's ``encoding/json``: an exponent below 1e-6 and from 1e21 on (open-protocol)."""
    if d == 0 or Decimal("1e-6") <= abs(d) < Decimal("1e21"):
        return go_f(d)
    digits = "".join(map(str, d.as_tuple().digits)).rstrip("0")
    point = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{'-' if d < 0 else ''}{digits[0]}{point}e{d.adjusted():+}"


def decoded(texts: list[str], protocol: str, kind: str = "double") -> list[str]:
    """The texts as values of one row."""
    if protocol == "canal-json":
        image = {f"c{i}": t for i, t in enumerate(texts)}
        whole = {"database": "s", "table": "t", "isDdl": False, "type": "INSERT", "data": [image],
                 "mysqlType": dict.fromkeys(image, kind)}  # fmt: skip
        message = None, json.dumps(whole).encode()
    else:
        code = 5 if kind == "double" else 4
        columns = ",".join(f'"c{i}":{{"t":{code},"f":0,"v":{t}}}' for i, t in enumerate(texts))
        key, value = b'{"ts":1,"scm":"s","tbl":"t","t":1}', f'{{"u":{{{columns}}}}}'.encode()
        message = (1).to_bytes(8, "big") + len(key).to_bytes(8, "big") + key, len(value).to_bytes(8, "big") + value
    (events,) = by_kernel([message], protocol)
    assert not isinstance(events, str), events
    return [c["value"] for c in events[0]["columns"]]


def check(found: list[str], wanted: list[Decimal]) -> None:
    """Each text is the number exactly, with the shortest digits, in MySQL's form."""
    for text, d in zip(found, wanted, strict=True):
        assert Decimal(text) == d and text.startswith("-") == d.is_signed()
        assert ("e" in text) == (d != 0 and not Decimal("1e-15") <= abs(d) < Decimal("1e15"))
        assert "e+" not in text and not text.endswith(".0") and (text.lstrip("-")[0] != "0" or abs(d) < 1)
        assert "e" not in text or len(text.lstrip("-").split("e")[0].split(".")[0]) == 1


@pytest.mark.parametrize("protocol", ["open-protocol", "canal-json"])
@settings(max_examples=40, deadline=None, derandomize=True)
@given(doubles)
def test_a_double_keeps_its_digits_in_both_of_gos_forms(protocol: str, numbers: list[float]) -> None:
    """Whichever way Go wrote a double, its value is MySQL's text with the same digits."""
    wanted = [shortest(x) for x in numbers]
    check(decoded([go_f(d) for d in wanted], protocol), wanted)
    check(decoded([go_json(d) for d in wanted], protocol), wanted)


@pytest.mark.parametrize("protocol", ["open-protocol", "canal-json"])
@settings(max_examples=20, deadline=None, derandomize=True)
@given(singles)
def test_a_float_keeps_its_digits_in_both_of_gos_forms(protocol: str, numbers: list[float]) -> None:
    """The same for FLOAT, whose shortest form is the one of 32 bits."""
    wanted = [shortest(x, single=True) for x in numbers]
    check(decoded([go_f(d) for d in wanted], protocol, "float"), wanted)
    check(decoded([go_json(d) for d in wanted], protocol, "float"), wanted)


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("5e-324", "5e-324"), ("1.7976931348623157e+308", "1.7976931348623157e308"), ("-0", "-0"), ("0", "0"),
        ("100000000000000000000", "1e20"), ("999999999999999", "999999999999999"), ("1e15", "1e15"),
        ("0.000000000000001", "0.000000000000001"), ("1e-16", "1e-16"), ("-1.50", "-1.5"), ("12300e-2", "123"),
        ("0." + "0" * 323 + "5", "5e-324"),
    ],
)  # fmt: skip
def test_floats_at_the_borders_of_the_two_forms(written: str, text: str) -> None:
    """The exponent form begins where MySQL's does, and trailing zeros go."""
    assert decoded([written], "open-protocol") == decoded([written], "canal-json") == [text]


@pytest.mark.parametrize("protocol", ["open-protocol", "canal-json"])
@settings(max_examples=20, deadline=None, derandomize=True)
@given(singles)
def test_a_float_that_was_written_as_a_double_has_the_same_text(protocol: str, numbers: list[float]) -> None:
    """Older TiCDC wrote 61.20000076293945 for 61.2: one FLOAT, one text, in plain Python and compiled."""
    wanted = [shortest(x, single=True) for x in numbers]
    check(decoded([go_f(shortest(x)) for x in numbers], protocol, "float"), wanted)


@pytest.mark.parametrize("text", ["1e39", "-1e39", "1e-50", "123456789e35"])
@pytest.mark.parametrize("protocol", ["open-protocol", "canal-json"])
def test_a_number_that_no_float_is_stays_as_it_is(protocol: str, text: str) -> None:
    """Nothing becomes infinite or zero."""
    [found] = decoded([text], protocol, "float")
    assert Decimal(found) == Decimal(text)
