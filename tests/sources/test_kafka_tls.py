"""A broker with TLS: with its CA a topic is read, and what keeps us out is reported soon, in words,
without a secret.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from broker import SASL, Broker, create_topic, over_tls, produce
from click.testing import CliRunner
from conftest import golden
from pyspark.sql import SparkSession

from ticdc_lab.cli import main
from ticdc_lab.engine.environment import require_java
from ticdc_lab.errors import SourceError
from ticdc_lab.sources.load import load

pytestmark = pytest.mark.spark

CANAL = "messages_canal-json-tidb_small.jsonl.gz"
TRUST = 'tru;st "pw" 9'
KEY = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0LWtleS1vZi1vdXJz\n-----END PRIVATE KEY-----"
SECRETS = ("s3c", TRUST, "tru;st", "c2VjcmV0")
"""Parts of all that must be shown nowhere."""


@pytest.fixture(scope="module")
def topic(spark: SparkSession, broker: Broker) -> str:
    """Give a topic of 40 messages."""
    create_topic(spark, broker, "tls", 2)
    produce(load(spark, str(golden(CANAL))).messages.where("partition < 2 AND offset < 20"), broker, "tls")
    return "tls"


def no_secret(text: str) -> bool:
    """Whether none of what must be shown nowhere is in a text."""
    return not any(secret in text for secret in SECRETS)


@pytest.fixture
def trusting(broker: Broker, tmp_path: Path) -> dict[str, str]:
    """Give the options of a client whose CA is in a keystore with a password."""
    store = tmp_path / "trust.p12"
    keytool = require_java().executable.with_name("keytool")
    given = ("-importcert", "-noprompt", "-alias", "ca", "-file", broker.certificates.ca)
    subprocess.run([keytool, *given, "-keystore", store, "-storepass", TRUST], check=True, capture_output=True)
    ssl = {"type": "PKCS12", "location": str(store), "password": TRUST}
    return over_tls(store) | {f"kafka.ssl.truststore.{name}": value for name, value in ssl.items()}


def test_a_topic_is_read_over_tls(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path, capfd: pytest.CaptureFixture[str],
    trusting: dict[str, str],
) -> None:  # fmt: skip
    """The messages come, nothing is missing, and no secret is in a plan, a log, an object or a folder."""
    out = tmp_path / "log"
    log = load(spark, f"kafka://127.0.0.1:{broker.tls}/{topic}", options=trusting)
    log.messages.explain(extended=True)
    kept = log.materialise(str(out))
    assert kept.counts is not None and (kept.counts.messages, kept.gaps) == (40, ())
    shown = "".join([repr((log, kept, kept.made_from)), *capfd.readouterr()])
    assert "Kafka" in shown and no_secret(shown)
    files = [path for path in out.rglob("*") if path.is_file()]
    assert files and all(no_secret(path.read_bytes().decode("latin-1")) for path in files)


@pytest.mark.soak
def test_a_report_of_a_topic_over_tls_holds_no_secret(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path, trusting: dict[str, str]
) -> None:
    """Whole pages, and what the command line shows."""
    page, config = tmp_path / "page.html", tmp_path / "client.properties"
    config.write_text("".join(f"{k.removeprefix('kafka.')}={v}\n" for k, v in trusting.items()))
    arguments = ["report", f"kafka://127.0.0.1:{broker.tls}/{topic}", "--out", str(page), "--kafka-config", str(config)]
    run = CliRunner().invoke(main, arguments, obj=spark)
    assert run.exit_code == 0, run.output
    assert topic in page.read_text() and no_secret(run.output + page.read_text())


def in_pem(ca: Path, **more: str) -> dict[str, str]:
    """Options over TLS; of the names of ``more`` each ``_`` is a dot."""
    return over_tls(ca) | {f"kafka.{name.replace('_', '.')}": value for name, value in more.items()}


@pytest.mark.parametrize(
    ("case", "message", "hint"),
    [
        ("another CA", "signed by no CA that is trusted here .PKIX", "truststore.location"),
        ("no CA", "signed by no CA that is trusted here .PKIX", "truststore.location"),
        ("expired", "is not valid now .*NotAfter", "renew"),
        ("another host", "is one of another host", "as their certificates do"),
        ("wrong password", "refused the credentials .*Invalid username or password", "kafka-config"),
        ("no file", "cannot be used .*NoSuchFileException: .*/nowhere", "must exist"),
        ("no PEM", "cannot be used .*No matching CERTIFICATE", "have the stated type"),
        ("no key", "cannot be used .*InvalidKeyException", "kafka.ssl"),
        ("password of the keystore", "cannot be used .*(keystore|format)", "have the stated type"),
        ("half a login", "cannot be used .*JAAS", "kafka.sasl"),
        ("no such protocol", "cannot be used .*Invalid value TLS", "security.protocol"),
    ],
)
def test_what_keeps_us_out_of_a_broker_with_tls_is_said(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path, case: str, message: str, hint: str
) -> None:
    """Within ten seconds an error that names the broker, in Python and on the command line, and holds no secret."""
    ca, port, host, login = broker.certificates.ca, broker.tls, "127.0.0.1", "sasl_jaas_config"
    jaas = SASL["kafka.sasl.jaas.config"]
    options = {
        "another CA": in_pem(broker.certificates.other_ca),
        "no CA": {**SASL, "kafka.security.protocol": "SASL_SSL"},
        "expired": {**in_pem(ca), "kafka.security.protocol": "SSL"},
        "wrong password": in_pem(ca, **{login: jaas.replace("s3cr", "s3cX")}),
        "no file": in_pem(tmp_path / "nowhere"),
        "no PEM": in_pem(ca.with_name("good.key")),
        "no key": in_pem(ca, ssl_keystore_type="PEM", ssl_keystore_key=KEY)
        | {"kafka.ssl.keystore.certificate.chain": ca.read_text()},
        "password of the keystore": in_pem(ca, ssl_truststore_type="JKS", ssl_truststore_password=TRUST),
        "half a login": in_pem(ca, **{login: jaas.removesuffix(";")}),
        "no such protocol": in_pem(ca, security_protocol="TLS"),
    }.get(case, in_pem(ca))
    port = broker.expired if case == "expired" else port
    host = "localhost" if case == "another host" else host
    source = f"kafka://{host}:{port}/{topic}"
    with pytest.raises(SourceError, match=f"(?s){message}") as caught:
        load(spark, source, options=options)
    assert f"{host}:{port}" in str(caught.value) and hint in caught.value.hint and no_secret(str(caught.value))
    given = [text for k, v in options.items() for text in ("--option", f"{k}={v}")]
    run = CliRunner().invoke(main, ["audit", source, "--debug", *given], obj=spark)
    assert run.exit_code == 2 and no_secret(run.output)
