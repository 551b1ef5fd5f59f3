"""Settings of Kafka's Java clients in the names of librdkafka: one table; what has no counterpart is refused by name.

People have a ``client.properties`` that their other tools take. A setting that is passed over can turn encryption off
or read as another user, so none is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from ticdc_lab.errors import SourceError

PREFIX = "kafka."

SAME = frozenset(
    {
        "client.id", "client.rack", "client.dns.lookup", "security.protocol", "sasl.mechanism", "isolation.level",
        "check.crcs", "fetch.min.bytes", "fetch.max.bytes", "max.partition.fetch.bytes", "metadata.max.age.ms",
        "connections.max.idle.ms", "reconnect.backoff.ms", "reconnect.backoff.max.ms", "retry.backoff.ms",
        "retry.backoff.max.ms", "socket.connection.setup.timeout.ms", "sasl.oauthbearer.token.endpoint.url",
        # names of librdkafka itself, which a configuration of kcat has
        "sasl.mechanisms", "sasl.username", "sasl.password", "ssl.ca.location", "ssl.ca.pem",
        "ssl.certificate.location", "ssl.certificate.pem", "ssl.key.location", "ssl.key.pem", "ssl.key.password",
        "enable.ssl.certificate.verification", "sasl.oauthbearer.config", "sasl.oauthbearer.method",
        "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret", "sasl.oauthbearer.scope",
        "sasl.oauthbearer.extensions", "enable.sasl.oauthbearer.unsecure.jwt", "broker.address.family",
    }
)  # fmt: skip
"""Names that mean the same in both."""

RENAMED: Mapping[str, str] = MappingProxyType(
    {
        "fetch.max.wait.ms": "fetch.wait.max.ms",
        "request.timeout.ms": "socket.timeout.ms",
        "send.buffer.bytes": "socket.send.buffer.bytes",
        "receive.buffer.bytes": "socket.receive.buffer.bytes",
        "ssl.truststore.certificates": "ssl.ca.pem",
        "ssl.keystore.certificate.chain": "ssl.certificate.pem",
        "ssl.keystore.key": "ssl.key.pem",
    }
)
"""Java's name to librdkafka's."""

WITHOUT_EFFECT = frozenset(
    {
        "bootstrap.servers", "group.id", "group.instance.id", "group.protocol", "auto.offset.reset",
        "enable.auto.commit", "auto.commit.interval.ms", "auto.include.jmx.reporter", "default.api.timeout.ms",
        "session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms", "max.poll.records",
        "partition.assignment.strategy", "exclude.internal.topics", "allow.auto.create.topics", "key.deserializer",
        "value.deserializer", "key.serializer", "value.serializer", "metric.reporters", "metrics.num.samples",
        "metrics.recording.level", "metrics.sample.window.ms", "enable.metrics.push",
        "socket.connection.setup.timeout.max.ms", "acks", "retries", "linger.ms", "batch.size", "compression.type",
        "buffer.memory", "delivery.timeout.ms", "max.block.ms", "enable.idempotence",
        "max.in.flight.requests.per.connection",
    }
)  # fmt: skip
"""What a reader does by itself, or what only groups and producers have: brokers and offsets are named in the command,
nothing is committed, no topic is created, bytes stay bytes."""

WRITING = frozenset(
    {
        "acks", "batch.size", "compression.type", "delivery.timeout.ms", "enable.idempotence", "linger.ms", "retries",
        "max.in.flight.requests.per.connection",
    }
)  # fmt: skip
"""Of these what a producer does: librdkafka names them as Java does."""

_READ_HERE = frozenset(
    {
        "sasl.jaas.config", "sasl.login.callback.handler.class", "ssl.truststore.type", "ssl.truststore.location",
        "ssl.truststore.password", "ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.password",
        "ssl.endpoint.identification.algorithm", "ssl.enabled.protocols", "ssl.protocol",
    }
)  # fmt: skip

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

_ON_SPARK = "Spark takes Kafka's settings as they are: --engine spark (it needs Java)."
_JAAS = re.compile(r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(.*?);?\s*", re.DOTALL | re.IGNORECASE)
_JAAS_OPTION = re.compile(r"""([\w.]+)\s*=\s*("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^\s;]+)""", re.DOTALL)
_CLAIM = "unsecuredLoginStringClaim_"
_OAUTH: Mapping[str, str] = MappingProxyType(
    {
        "clientId": "sasl.oauthbearer.client.id",
        "clientSecret": "sasl.oauthbearer.client.secret",
        "scope": "sasl.oauthbearer.scope",
    }
)


def client_settings(options: Mapping[str, str]) -> dict[str, str]:
    """Settings of librdkafka for options named ``kafka.*`` as Kafka's Java clients have them; others are left out.

    ``options``: settings of a source by name. Returns: without the brokers. Raises SourceError: a setting has no
    counterpart. No value is in its text.

    Examples
    --------
    >>> login = "org.apache.kafka.common.security.plain.PlainLoginModule required username='ada' password='x';"
    >>> client_settings({"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": login, "minPartitions": "2"})
    {'sasl.mechanism': 'PLAIN', 'sasl.username': 'ada', 'sasl.password': 'x'}
    """
    given = {name.removeprefix(PREFIX): value for name, value in options.items() if name.startswith(PREFIX)}
    unknown = sorted(given.keys() - SAME - RENAMED.keys() - WITHOUT_EFFECT - _READ_HERE)
    if unknown:
        raise _refused(", ".join(PREFIX + name for name in unknown), "has no counterpart in librdkafka")
    found = {RENAMED.get(name, name): value for name, value in given.items() if name in SAME or name in RENAMED}
    return found | _login(given) | _trust(given) | _identity(given)


def _login(given: Mapping[str, str]) -> dict[str, str]:
    """User and password, or the client of a token, out of a line for Java's login modules."""
    mechanism = given.get("sasl.mechanism", given.get("sasl.mechanisms", "")).upper()
    if "SASL" in given.get("security.protocol", "").upper() and not mechanism:
        mechanism = "GSSAPI"  # as Java has it by default
    if mechanism and mechanism not in MECHANISMS:
        raise _refused(f"kafka.sasl.mechanism={mechanism}", f"is none of {', '.join(MECHANISMS)}")
    handler = given.get("sasl.login.callback.handler.class", "")
    if handler and not handler.endswith(".OAuthBearerLoginCallbackHandler"):
        raise _refused("kafka.sasl.login.callback.handler.class", "names a class of Java")
    if "sasl.jaas.config" not in given:
        return {}
    line = _JAAS.fullmatch(given["sasl.jaas.config"])
    options = {name: _unquoted(value) for name, value in _JAAS_OPTION.findall(line[2])} if line else {}
    module = line[1].rpartition(".")[2] if line else ""
    if module in ("PlainLoginModule", "ScramLoginModule") and {"username", "password"} <= options.keys():
        return {"sasl.username": options["username"], "sasl.password": options["password"]}
    if module == "OAuthBearerLoginModule":
        return _token(options)
    raise SourceError(
        "The setting kafka.sasl.jaas.config is no line that could be read (it is not shown here).",
        hint='Expected ..PlainLoginModule required username="USER" password="PASSWORD"; or the same of '
        f"ScramLoginModule, or OAuthBearerLoginModule with clientId and clientSecret. {_ON_SPARK}",
    )


def _token(options: Mapping[str, str]) -> dict[str, str]:
    """OAUTHBEARER: a token of an identity provider, or an unsigned one, for tests."""
    claims = {name.removeprefix(_CLAIM): value for name, value in options.items() if name.startswith(_CLAIM)}
    if claims:
        config = f"principal={claims.get('sub', '')}" + (f" scope={claims['scope']}" if "scope" in claims else "")
        return {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": config}
    extensions = [f"{n.removeprefix('extension_')}={v}" for n, v in options.items() if n.startswith("extension_")]
    more = {"sasl.oauthbearer.extensions": ",".join(extensions)} if extensions else {}
    if unknown := sorted(n for n in options.keys() - _OAUTH.keys() if not n.startswith("extension_")):
        raise _refused(f"{', '.join(unknown)} in kafka.sasl.jaas.config", "has no counterpart in librdkafka")
    return {"sasl.oauthbearer.method": "oidc"} | {_OAUTH[n]: v for n, v in options.items() if n in _OAUTH} | more


def _unquoted(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1], flags=re.DOTALL) if value[:1] in "\"'" else value


def _trust(given: Mapping[str, str]) -> dict[str, str]:
    """Which CA is trusted, whose name a certificate must have, and how old TLS may be."""
    found: dict[str, str] = {}
    if place := given.get("ssl.truststore.location"):
        if (kind := given.get("ssl.truststore.type", "JKS").upper()) != "PEM":
            raise _of_java(
                "kafka.ssl.truststore.location", kind, f"keytool -exportcert -rfc -keystore {place} > ca.pem"
            )
        found["ssl.ca.location"] = place
    if "ssl.endpoint.identification.algorithm" in given:
        found["ssl.endpoint.identification.algorithm"] = given["ssl.endpoint.identification.algorithm"] or "none"
    for name in ("ssl.enabled.protocols", "ssl.protocol"):
        if {p.strip() for p in given.get(name, "").split(",") if p.strip()} - {"TLS", "TLSv1.2", "TLSv1.3"}:
            raise _refused(PREFIX + name, "allows a version of TLS other than 1.2 and 1.3")
    return found


def _identity(given: Mapping[str, str]) -> dict[str, str]:
    """The certificate and key of this client."""
    place = given.get("ssl.keystore.location")
    if not place:
        return {}
    kind = given.get("ssl.keystore.type", "JKS").upper()
    if kind == "PEM":
        return {"ssl.certificate.location": place, "ssl.key.location": place}
    if kind == "PKCS12":
        return {"ssl.keystore.location": place, "ssl.keystore.password": given.get("ssl.keystore.password", "")}
    command = f"keytool -importkeystore -srckeystore {place} -destkeystore client.p12 -deststoretype PKCS12"
    raise _of_java("kafka.ssl.keystore.location", kind, command)


def _of_java(name: str, kind: str, command: str) -> SourceError:
    return SourceError(
        f"The setting {name} names a {kind} file, which only Java reads.",
        hint=f"Convert it: {command}   and set the type (PEM, or PKCS12 for a keystore). {_ON_SPARK}",
    )


def _refused(what: str, why: str) -> SourceError:
    return SourceError(f"The setting {what} {why}, so the topic is not read.", hint=_ON_SPARK)
