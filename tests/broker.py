"""Real Kafka brokers for the tests: KRaft nodes on free loopback ports, from pinned jars, killed at the end."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from certificates import Certificates, certificates
from cluster import QUICK
from confluent_kafka.admin import AdminClient
from ports import free_ports
from pyspark.sql import DataFrame, SparkSession
from topics import QUIET, until_seen

from ticdc_lab.engine.environment import require_java
from ticdc_lab.engine.jars import Jar, jar_paths

LOCK = Path(__file__).with_name("broker.lock")
CLUSTER = "ticdc-lab-tests-cluster"  # 22 characters, as Kafka's ids have
START_S = 300
SECRET = 's3cr;t ="quoted"'
"""A password with all that is hard to keep out of a text."""

USER = "reader"
_ESCAPED = SECRET.replace('"', '\\"')
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"

OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
"""Its broker takes tokens without a signature."""
_CLAIM = "unsecuredLoginStringClaim_sub"

SASL: Mapping[str, str] = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": f'{_LOGIN} username="{USER}" password="{_ESCAPED}";',
}
"""Options with which the second listener lets a client in."""

SCRAM_SECRET = "s3cr-scram"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"

SCRAM: Mapping[str, str] = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "SCRAM-SHA-256",
    "kafka.sasl.jaas.config": f'{_SCRAM} username="{USER}" password="{SCRAM_SECRET}";',
}
"""The same, for which neither side sends the password."""


def over_tls(ca: Path) -> dict[str, str]:
    """Options for the listener that speaks SASL over TLS, for a client that trusts a CA."""
    trusted = {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": str(ca)}
    return {**SASL, "kafka.security.protocol": "SASL_SSL", **trusted}


def jars() -> list[Path]:
    """The broker's jars, each fetched once into the cache folder and checked."""
    lines = [line.split() for line in LOCK.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    with ThreadPoolExecutor(4) as pool:  # Ivy fetches one after the other, and each Ivy is a Java
        parts = pool.map(jar_paths, ([Jar(*pair) for pair in lines[n::4]] for n in range(4)))
        return [path for part in parts for path in part]


class Broker:
    """A broker that can be killed and started again on its data.

    Parameters
    ----------
    folder
        For its data.
    node
        Its number, which ``controllers`` names.
    controllers
        The ports of the controllers of its cluster, by node; without them it is alone.
    """

    def __init__(self, folder: Path, *, node: int = 1, controllers: Mapping[int, int] | None = None) -> None:
        self.folder, self.node, self._controllers = folder, node, controllers
        self.plain, self.sasl, self.tls, self.expired, own = free_ports(5)
        self.controller = own if controllers is None else controllers[node]
        self.certificates: Certificates = certificates(folder / "certificates")
        self._class_path = ":".join(map(str, jars()))
        self._process: subprocess.Popen[bytes] | None = None
        self._settings = folder / "server.properties"
        self._settings.write_text(self._properties())
        alone = () if controllers else ("--standalone",)
        scram = ("--add-scram", f"SCRAM-SHA-256=[name={USER},password={SCRAM_SECRET}]")
        self._java("kafka.tools.StorageTool", "format", *alone, "-t", CLUSTER, *scram, "-c").wait(START_S)

    def url(self, *topics: str, sasl: bool = False) -> str:
        """The source that names ``topics``."""
        return f"kafka://127.0.0.1:{self.sasl if sasl else self.plain}/{','.join(topics)}"

    def clients(self) -> AdminClient:
        """Kafka's administration for what needs no Java."""
        return AdminClient({"bootstrap.servers": f"127.0.0.1:{self.plain}", **QUIET})

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        self.begin()
        self.wait()

    def begin(self) -> None:
        """Start it; one of several takes connections only when most of them run."""
        self._process = self._java("kafka.Kafka")

    def wait(self) -> None:
        """Wait until it takes connections."""
        assert self._process is not None
        end = time.monotonic() + START_S
        while time.monotonic() < end and self._process.poll() is None:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.sasl)):
                return
            time.sleep(0.1)
        raise RuntimeError(f"the broker did not start: {self._log().read_text()[-2000:]}")

    def hang(self) -> None:
        """Let it keep its connections and answer nothing, as a machine that swaps does."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        """End it as a power failure would."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def _log(self) -> Path:
        return self.folder / "broker.log"

    def _java(self, *command: str) -> subprocess.Popen[bytes]:
        java = [str(require_java().executable), "-Xmx384m", *QUICK.split(), "-cp", self._class_path]
        with self._log().open("wb") as log:
            return subprocess.Popen(
                [*java, *command, str(self._settings)], stdout=log, stderr=subprocess.STDOUT, cwd=self.folder
            )

    def _properties(self) -> str:
        at = "127.0.0.1"
        ports = {"PLAINTEXT": self.plain, "SASL_PLAINTEXT": self.sasl, "TLS": self.tls, "EXPIRED": self.expired}
        protocols = {"PLAINTEXT": "PLAINTEXT", "SASL_PLAINTEXT": "SASL_PLAINTEXT", "TLS": "SASL_SSL", "EXPIRED": "SSL"}
        user = f'{_LOGIN} user_{USER}="{_ESCAPED}";'.replace("\\", "\\\\")
        voters = [f"{node}@{at}:{port}" for node, port in (self._controllers or {}).items()]
        copies = str(min(3, len(voters)) or 1)
        settings = {
            "process.roles": "broker,controller",
            "node.id": str(self.node),
            **({"controller.quorum.voters": ",".join(voters)} if voters else {}),
            **({} if voters else {"controller.quorum.bootstrap.servers": f"{at}:{self.controller}"}),
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listeners": ",".join(f"{n}://{at}:{p}" for n, p in (ports | {"CONTROLLER": self.controller}).items()),
            "listener.security.protocol.map": ",".join(
                f"{n}:{p}" for n, p in (protocols | {"CONTROLLER": "PLAINTEXT"}).items()
            ),
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
            "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": f'{OAUTH} {_CLAIM}="{USER}";',
            "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": f"{_SCRAM};",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": user,
            "listener.name.tls.plain.sasl.jaas.config": user,
            "listener.name.tls.ssl.keystore.type": "PEM",
            "listener.name.tls.ssl.keystore.location": str(self.certificates.good),
            "listener.name.expired.ssl.keystore.type": "PEM",
            "listener.name.expired.ssl.keystore.location": str(self.certificates.expired),
            "log.dirs": str(self.folder / "data"),
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": "1",
            "log.cleaner.dedupe.buffer.size": str(8 << 20),
            "log.cleaner.backoff.ms": "1000",
            "broker.heartbeat.interval.ms": "500",
            "metadata.max.idle.interval.ms": "0",  # else it notes each half second that nothing happens
            "broker.session.timeout.ms": "3000",
            "num.network.threads": "2",
            "num.io.threads": "2",
        }
        return "".join(f"{name}={value}\n" for name, value in settings.items())


@contextmanager
def running(folder: Path) -> Iterator[Broker]:
    """A broker that is gone afterwards."""
    broker = Broker(folder)
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()


@contextmanager
def cluster(folder: Path, nodes: int = 3) -> Iterator[list[Broker]]:
    """Brokers of one cluster, each of them a controller too, which are gone afterwards."""
    controllers = dict(enumerate(free_ports(nodes), 1))
    with ExitStack() as stack:
        brokers = []
        for node in controllers:
            (folder / str(node)).mkdir(parents=True)
            brokers.append(Broker(folder / str(node), node=node, controllers=controllers))
            stack.callback(brokers[-1].kill)
        for act in (Broker.begin, Broker.wait):
            for one in brokers:
                act(one)
        yield brokers


@contextmanager
def admin(spark: SparkSession, broker: Broker) -> Iterator[Any]:
    """Kafka's own administration, in the session's JVM."""
    client = spark._jvm.org.apache.kafka.clients.admin.AdminClient.create(
        {"bootstrap.servers": f"127.0.0.1:{broker.plain}", "request.timeout.ms": "5000"}
    )
    try:
        yield client
    finally:
        client.close()


def create_topic(
    spark: SparkSession, broker: Broker, name: str, partitions: int, *, copies: int = 1, **settings: str
) -> None:
    """Make an empty topic; of its ``settings`` each ``_`` is a dot."""
    assert spark._jvm is not None
    new = spark._jvm.org.apache.kafka.clients.admin.NewTopic(name, partitions, copies)
    with admin(spark, broker) as client:
        given = {name.replace("_", "."): value for name, value in settings.items()}
        client.createTopics([new.configs(given)]).all().get()
    until_seen(broker.clients(), name, partitions)


def add_partitions(spark: SparkSession, broker: Broker, name: str, partitions: int) -> None:
    """Give a topic more partitions."""
    more = spark._jvm.org.apache.kafka.clients.admin.NewPartitions.increaseTo(partitions)
    with admin(spark, broker) as client:
        client.createPartitions({name: more}).all().get()
    until_seen(broker.clients(), name, partitions)


def expire(spark: SparkSession, broker: Broker, topic: str, partition: int, before: int) -> None:
    """Delete the messages of a partition that lie before an offset, as retention does."""
    jvm = spark._jvm
    place = jvm.org.apache.kafka.common.TopicPartition(topic, partition)
    # two methods have this name; py4j takes the one that is not static
    kinds, values = (spark.sparkContext._gateway.new_array(k, 1) for k in (jvm.java.lang.Class, jvm.java.lang.Object))
    kinds[0], values[0] = jvm.java.lang.Long.TYPE, before
    loader = place.getClass().getClassLoader()
    method = loader.loadClass("org.apache.kafka.clients.admin.RecordsToDelete").getMethod("beforeOffset", kinds)
    with admin(spark, broker) as client:
        client.deleteRecords({place: method.invoke(None, values)}).all().get()


def leader_of(spark: SparkSession, broker: Broker, topic: str, partition: int) -> int:
    """The node that leads a partition."""
    with admin(spark, broker) as client:
        described = client.describeTopics([topic]).allTopicNames().get()[topic]
        return int(next(p for p in described.partitions() if p.partition() == partition).leader().id())


@contextmanager
def slowed(spark: SparkSession, broker: Broker, bytes_a_s: int) -> Iterator[None]:
    """Let the broker give each client only so many bytes a second, so that something can happen while it reads."""
    assert spark._jvm is not None
    quota = spark._jvm.org.apache.kafka.common.quota
    anybody = quota.ClientQuotaEntity({"client-id": None})

    def set_to(rate: float | None) -> None:
        operation = quota.ClientQuotaAlteration.Op("consumer_byte_rate", rate)
        with admin(spark, broker) as client:
            client.alterClientQuotas([quota.ClientQuotaAlteration(anybody, [operation])]).all().get()

    set_to(float(bytes_a_s))
    try:
        yield
    finally:
        set_to(None)


def produce(messages: DataFrame, broker: Broker, topic: str) -> None:
    """Send messages to their partitions in the order of their offsets."""
    rows = messages.select("partition", "key", "value", "offset").coalesce(1).sortWithinPartitions("offset")
    rows.drop("offset").write.format("kafka").option("kafka.bootstrap.servers", f"127.0.0.1:{broker.plain}").option(
        "topic", topic
    ).save()
