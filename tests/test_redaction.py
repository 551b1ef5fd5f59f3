"""What is secret never shows."""

from __future__ import annotations

import pytest

from ticdc_lab.redaction import redacted

JAAS = 'PlainLoginModule required username="me" password="p;w \\"x\\"";'


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kafka.sasl.jaas.config": JAAS}, f"bad setting {JAAS}"),
        ({"kafka.sasl.jaas.config": JAAS}, f"bad setting {JAAS!r}"),
        ({"kafka.ssl.key.password": "x y"}, "tried 'x y' for the key"),
        ({"kafka.ssl.keystore.key": "-----BEGIN\nAAA"}, "no PEM: '-----BEGIN\\nAAA'"),
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
    """An error still says what it is about."""
    options = {"kafka.security.protocol": "SASL_SSL", "kafka.ssl.key.password": "x"}
    assert redacted("SASL_SSL handshake failed", {"kafka.security.protocol": "SASL_SSL"}) == "SASL_SSL handshake failed"
    assert redacted("host 10.0.0.1:9093", options) == "host 10.0.0.1:9093"
