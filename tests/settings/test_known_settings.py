"""One concept: a setting, where it is known from, how surely, and what contradicts the log."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ticdc_lab.answers.settings import settings as answer_of
from ticdc_lab.errors import ContractError
from ticdc_lab.settings import Contradiction, Setting, Settings, require_name
from ticdc_lab.settings.keys import FROM_URI, KEYS

HEX, BASE64 = (Setting("sink.csv.binary-encoding-method", v, "file", "given", "file c.toml") for v in ("hex", "base64"))


@pytest.mark.parametrize(
    ("places", "counts"),
    [
        ((("option", "given"), ("file", "given"), ("bytes", "shown")), "option"),
        ((("file", "given"), ("bytes", "shown")), "bytes"),
        ((("file", "given"), ("bytes", "likely"), ("bytes", "guessed")), "file"),
        ((("bytes", "guessed"), ("bytes", "likely")), "bytes"),
    ],
)
def test_an_option_wins_and_bytes_that_allow_nothing_else_win_over_a_file(
    places: tuple[tuple[str, str], ...], counts: str
) -> None:
    """What the bytes show cannot be otherwise, so a file that has another value is of another time or changefeed."""
    known = Settings(tuple(Setting("sink.csv.delimiter", "".join(p), p[0], p[1]) for p in places))  # type: ignore[arg-type]
    found = known.get("csv.delimiter")
    assert found is not None and found.source == counts and known.value("sink.csv.delimiter") == found.value
    assert {s.sure for s in known} != {"guessed"}


def test_what_was_given_and_the_bytes_show_otherwise_is_a_contradiction() -> None:
    """The words name both values, both places and which one counts; a guess contradicts nothing."""
    shown = Setting("sink.csv.binary-encoding-method", "base64", "bytes", "shown", "3 values have `=`")
    (found,) = (Settings((HEX,)) | [shown]).contradictions
    assert found.words == (
        'The file c.toml sets sink.csv.binary-encoding-method = "hex", but the log shows "base64": '
        "3 values have `=`; the bytes count."
    )
    likely = Setting("sink.csv.binary-encoding-method", "base64", "bytes", "likely", "it looks so")
    assert (Settings((HEX,)) | [likely]).contradictions[0].words.endswith("the file counts.")
    guess = Setting("sink.csv.binary-encoding-method", "base64", "bytes", "guessed", "too few digits")
    assert not (Settings((HEX,)) | [guess]).contradictions
    assert not (Settings((BASE64,)) | [shown]).contradictions


def test_a_newer_value_from_the_same_place_replaces_the_older_one() -> None:
    """So evidence of the whole log replaces the one of a sample."""
    a, b = (
        Setting("sink.only-output-updated-columns", v, "bytes", "likely", e) for v, e in ((False, "a"), (True, "b"))
    )
    assert (Settings((a, HEX)) | [b]).known == (HEX, b)


def test_secrets_are_not_shown() -> None:
    """A password of the file is known, and in no table."""
    known = Settings((Setting("sink.kafka-config.sasl-password", "sesame", "file"),))
    assert "sesame" not in str(known.rows()) and known.get("sasl-password") is None
    assert next(iter(known)).text == "***"


def test_an_unknown_name_suggests_the_nearest() -> None:
    """Also in the short forms that options take."""
    assert require_name("csv.delimiter") == "sink.csv.delimiter"
    assert require_name("enable_tidb_extension") == FROM_URI["enable-tidb-extension"]
    with pytest.raises(ContractError, match=r"nearest is sink\.csv\.delimiter"):
        require_name("sink.csv.delimeter")


def test_every_key_that_is_read_names_what_depends_on_it_and_what_to_give() -> None:
    """So the table of settings has no empty cell."""
    for name, key in KEYS.items():
        assert key.depends, name
        assert (key.bearing == "read") == bool(key.give), name


def test_dispatchers_that_are_not_compared_are_named() -> None:
    """Other rules may mean the same, so a difference is no contradiction; but it is not passed over in silence."""
    seen = Setting("sink.dispatchers", ({"matcher": ["a.t"], "partition": "ts"},), "bytes", "likely", "all 9 rows")
    given = Setting("sink.dispatchers", ({"matcher": ["a.*"], "partition": "index-value"},), "file", "given", "file f")
    both = answer_of(Settings((given, seen)))
    (said,) = both.details
    assert said.startswith(
        "sink.dispatchers of the file is given (file f). The log fits other rules, and not all rows were compared: "
        "[{matcher"
    )
    (verified,) = answer_of(Settings((replace(given, sure="verified", evidence="file f; all 9 rows"), seen))).details
    assert verified.startswith(
        "sink.dispatchers of the file is verified (file f; all 9 rows). The log fits other rules, too: [{matcher"
    )
    contradicted = Settings((given, seen), (Contradiction(given, seen="9 of 9 rows are elsewhere"),))
    assert not answer_of(contradicted).details, "the contradiction says it"
    assert not both.values["contradictions"]
    assert not answer_of(Settings((seen,))).details
    assert not answer_of(Settings((replace(given, value=seen.value), seen))).details
