"""Java's client.properties give the settings of librdkafka that mean the same, and nothing is passed over."""

from __future__ import annotations

import confluent_kafka
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_lab.errors import SourceError
from ticdc_lab.sources.kafka_settings import RENAMED, SAME, WITHOUT_EFFECT, client_settings

LOGIN = "org.apache.kafka.common.security.{} required"
PLAIN, SCRAM = LOGIN.format("plain.PlainLoginModule"), LOGIN.format("scram.ScramLoginModule")
OAUTH = LOGIN.format("oauthbearer.OAuthBearerLoginModule")
USER = {"sasl.username": "ada", "sasl.password": "x"}


def java(**settings: str) -> dict[str, str]:
    """Options of a source, of whose names each ``_`` is a dot."""
    return {f"kafka.{name.replace('_', '.')}": value for name, value in settings.items()}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"startingOffsets": "earliest"}, {}),
        (java(fetch_max_wait_ms="7", request_timeout_ms="9"), {"fetch.wait.max.ms": "7", "socket.timeout.ms": "9"}),
        (java(sasl_mechanism="PLAIN", sasl_jaas_config=f'{PLAIN} username="ada" password="x";'), USER),
        (java(sasl_mechanism="SCRAM-SHA-512", sasl_jaas_config=f"{SCRAM} password='x'\n username=ada ;"), USER),
        (
            java(sasl_jaas_config=f'{OAUTH} clientId="c" clientSecret="s" scope="k" extension_cluster="1";'),
            {
                "sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.client.id": "c",
                "sasl.oauthbearer.client.secret": "s", "sasl.oauthbearer.scope": "k",
                "sasl.oauthbearer.extensions": "cluster=1",
            },
        ),
        (
            java(sasl_jaas_config=f'{OAUTH} unsecuredLoginStringClaim_sub="ada";'),
            {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": "principal=ada"},
        ),
        (java(ssl_truststore_type="PEM", ssl_truststore_location="ca.pem"), {"ssl.ca.location": "ca.pem"}),
        (java(ssl_endpoint_identification_algorithm=""), {"ssl.endpoint.identification.algorithm": "none"}),
        (
            java(ssl_keystore_type="PEM", ssl_keystore_location="me.pem", ssl_key_password="x"),
            {"ssl.certificate.location": "me.pem", "ssl.key.location": "me.pem", "ssl.key.password": "x"},
        ),
        (
            java(ssl_keystore_type="PKCS12", ssl_keystore_location="me.p12", ssl_keystore_password="x"),
            {"ssl.keystore.location": "me.p12", "ssl.keystore.password": "x"},
        ),
        (java(ssl_enabled_protocols="TLSv1.2,TLSv1.3", group_id="mine", key_deserializer="a.B"), {}),
    ],
)  # fmt: skip
def test_settings_keep_their_meaning(given: dict[str, str], expected: dict[str, str]) -> None:
    """Under librdkafka's name, out of the line for a login module, or without effect on a reader."""
    found = client_settings(given)
    assert {name: found[name] for name in expected} == expected
    assert found.keys() <= expected.keys() | {"sasl.mechanism"}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (java(interceptor_classes="a.B", typo_here="1"), r"kafka\.interceptor\.classes, kafka\.typo\.here"),
        (java(ssl_truststore_location="x.jks", ssl_truststore_password="s3cr"), r"ssl\.truststore\.location.*JKS"),
        (java(ssl_keystore_location="x.jks", ssl_keystore_password="s3cr"), r"ssl\.keystore\.location.*JKS"),
        (java(sasl_mechanism="GSSAPI"), "GSSAPI is none of"),
        (java(security_protocol="SASL_SSL"), "GSSAPI is none of"),
        (java(sasl_mechanism="AWS_MSK_IAM"), "AWS_MSK_IAM"),
        (java(sasl_login_callback_handler_class="software.amazon.X"), "names a class of Java"),
        (java(sasl_jaas_config="s3cr"), "no line that could be read"),
        (java(sasl_jaas_config=f'{PLAIN} password="s3cr";'), "no line that could be read"),
        (java(sasl_jaas_config=f'{OAUTH} clientId="c" keytab="s3cr";'), "keytab"),
        (java(ssl_enabled_protocols="TLSv1"), "other than 1.2 and 1.3"),
    ],
)
def test_what_has_no_counterpart_is_refused_by_name(given: dict[str, str], named: str) -> None:
    """A setting that is passed over could turn encryption off; no value of a secret is in the words."""
    with pytest.raises(SourceError, match=named) as caught:
        client_settings(given)
    assert "--engine spark" in caught.value.hint and "s3cr" not in str(caught.value)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_a_password_of_any_characters_arrives(password: str) -> None:
    """Quotes, semicolons, blanks and backslashes are escaped in a JAAS line as Java reads them."""
    escaped = password.replace("\\", "\\\\").replace('"', '\\"')
    found = client_settings(java(sasl_jaas_config=f'{PLAIN} username="a;b" password="{escaped}";'))
    assert found == {"sasl.username": "a;b", "sasl.password": password}


def test_librdkafka_knows_every_name() -> None:
    """Each name that a setting can get is one that the library takes (else it would report it)."""
    assert not SAME & RENAMED.keys() and not (SAME | RENAMED.keys()) & WITHOUT_EFFECT
    unknown = []
    for name in sorted({*SAME, *RENAMED.values()}):
        try:
            confluent_kafka.Producer({name: "", "bootstrap.servers": "", "log_level": 0})
        except (confluent_kafka.KafkaException, TypeError, ValueError) as error:  # an empty value is none of many
            unknown += [name] if "No such configuration property" in str(error) else []
    assert unknown == []
