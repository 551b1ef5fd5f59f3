"""What is secret never shows."""

from __future__ import annotations

import pytest

from ticdc_lab.codecs import Known
from ticdc_lab.errors import SourceError
from ticdc_lab.errors.redaction import redacted, without_secrets

JAAS = 'PlainLoginModule required username="me" password="p;w \\"x\\"";'


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kafka.sasl.jaas.config": JAAS}, f"bad setting {JAAS}"),
        ({"kafka.sasl.jaas.config": JAAS}, f"bad setting {JAAS!r}"),
        ({"kafka.ssl.key.password": "x y"}, "tried 'x y' for the key"),
        ({"kafka.ssl.keystore.key": "-----BEGIN\nAAA"}, "no PEM: '-----BEGIN\\nAAA'"),
        ({"kafka.ssl.keystore.key": "-----BEGIN KEY-----\nAAAAAAAA\n"}, "an odd line: AAAAAAAA"),
        ({"kafka.sasl.jaas.config": 'M required clientSecret="q7"'}, "the client said q7"),
        ({}, 'login with password="p;w \\"x\\"" failed'),
    ],
)
def test_a_secret_is_hidden_in_whatever_form_it_is_written(options: dict[str, str], said: str) -> None:
    """Whole, as Python or JSON writes it, taken out of a JAAS line, or as ``password=..`` of an unknown origin."""
    shown = redacted(said, options)
    assert "***" in shown
    assert not any(part in shown for part in ("p;w", "x y", "AAA", "q7", '\\"x'))


def test_what_is_no_secret_stays() -> None:
    """An error still shows what it is about."""
    options = {"kafka.security.protocol": "SASL_SSL", "kafka.ssl.key.password": "x"}
    assert redacted("SASL_SSL handshake failed", {"kafka.security.protocol": "SASL_SSL"}) == "SASL_SSL handshake failed"
    assert redacted("host 10.0.0.1:9093", options) == "host 10.0.0.1:9093"


def test_a_url_is_shown_without_what_may_be_secret_in_it() -> None:
    """Name and password, and the query; where a password makes it unclear which is which, nothing of it."""
    assert without_secrets("https://me:pw@h:8081/x?token=1") == "https://h:8081/x"
    assert without_secrets("https://me:p?w@h:1/x?k=1") == "https://..."
    assert without_secrets("kafka://me:p/w@h:1/t") == "kafka://h:1/t"
    assert without_secrets("h:1/t") == "h:1/t"


def test_what_is_known_for_decoding_shows_no_place_that_may_hold_a_password() -> None:
    """A loaded log shows it wherever it is printed."""
    assert "s3cret" not in repr(Known(registry_url="http://me:s3cret@h", claim_check="s3://me:s3cret@bucket"))


def test_a_hint_names_the_log_that_was_read_without_its_password() -> None:
    """What a sink cannot know is filled in where the log is known: one place, one form."""
    error = SourceError("It fails.", hint="See: ticdc-lab audit SOURCE. RESOURCE stays.")
    error.about("s3a://me:hidden@bucket/a log")
    assert error.hint == "See: ticdc-lab audit 's3a://bucket/a log'. RESOURCE stays."
    assert str(error) == f"It fails.\n\nHint: {error.hint}"
