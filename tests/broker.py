"""A real Kafka broker for the tests: one KRaft node on free loopback ports, from pinned jars, killed at the end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ticdc_lab.engine.environment import require_java
from ticdc_lab.engine.jars import Jar, jar_paths

LOCK = Path(__file__).with_name("broker.lock")
CLUSTER = "ticdc-lab-tests-cluster"  # 22 characters, as Kafka's ids have
START_S = 60
SECRET = 's3cr;t ="quoted"'
"""A password with all that is hard to keep out of a text."""

USER = "reader"
_ESCAPED = SECRET.replace('"', '\\"')
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"

SASL: Mapping[str, str] = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": f'{_LOGIN} username="{USER}" password="{_ESCAPED}";',
}
"""Options with which the second listener lets a client in."""


def jars() -> list[Path]:
    """The broker's jars, each fetched once into the cache folder and checked."""
    lines = [line.split() for line in LOCK.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda pair: jar_paths([Jar(*pair)])[0], lines))


class Broker:
    """A broker that can be killed and started again on its data."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plain, self.sasl, self.controller = _free_ports(3)
        self._class_path = ":".join(map(str, jars()))
        self._process: subprocess.Popen[bytes] | None = None
        self._settings = folder / "server.properties"
        self._settings.write_text(self._properties())
        self._java("kafka.tools.StorageTool", "format", "--standalone", "-t", CLUSTER, "-c").wait(START_S)
        self.start()

    def url(self, *topics: str, sasl: bool = False) -> str:
        """The source that names ``topics``."""
        return f"kafka://127.0.0.1:{self.sasl if sasl else self.plain}/{','.join(topics)}"

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        self._process = self._java("kafka.Kafka")
        end = time.monotonic() + START_S
        while time.monotonic() < end and self._process.poll() is None:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.sasl)):
                return
            time.sleep(0.1)
        raise RuntimeError(f"the broker did not start: {self._log().read_text()[-2000:]}")

    def kill(self) -> None:
        """End it as a power failure would."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def _log(self) -> Path:
        return self.folder / "broker.log"

    def _java(self, *command: str) -> subprocess.Popen[bytes]:
        java = [str(require_java().executable), "-Xmx384m", "-XX:TieredStopAtLevel=1", "-cp", self._class_path]
        with self._log().open("wb") as log:
            return subprocess.Popen(
                [*java, *command, str(self._settings)], stdout=log, stderr=subprocess.STDOUT, cwd=self.folder
            )

    def _properties(self) -> str:
        at = "127.0.0.1"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": f"{at}:{self.controller}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listeners": f"PLAINTEXT://{at}:{self.plain},SASL_PLAINTEXT://{at}:{self.sasl},"
            f"CONTROLLER://{at}:{self.controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{_LOGIN} user_{USER}="{_ESCAPED}";'.replace(
                "\\", "\\\\"
            ),
            "log.dirs": str(self.folder / "data"),
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "log.cleaner.dedupe.buffer.size": str(8 << 20),
            "num.network.threads": "2",
            "num.io.threads": "2",
        }
        return "".join(f"{name}={value}\n" for name, value in settings.items())


@contextmanager
def running(folder: Path) -> Iterator[Broker]:
    """A broker that is gone afterwards."""
    broker = Broker(folder)
    try:
        yield broker
    finally:
        broker.kill()


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


def create_topic(spark: SparkSession, broker: Broker, name: str, partitions: int) -> None:
    """Make an empty topic."""
    new = spark._jvm.org.apache.kafka.clients.admin.NewTopic
    with admin(spark, broker) as client:
        client.createTopics([new(name, partitions, 1)]).all().get()


def add_partitions(spark: SparkSession, broker: Broker, name: str, partitions: int) -> None:
    """Give a topic more partitions."""
    more = spark._jvm.org.apache.kafka.clients.admin.NewPartitions.increaseTo(partitions)
    with admin(spark, broker) as client:
        client.createPartitions({name: more}).all().get()


def expire(spark: SparkSession, broker: Broker, topic: str, partition: int, before: int) -> None:
    """Delete the messages of a partition that lie before an offset, as retention does."""
    jvm = spark._jvm
    place = jvm.org.apache.kafka.common.TopicPartition(topic, partition)
    # two methods have this name, of which py4j takes the one that is not static
    kinds, values = (spark.sparkContext._gateway.new_array(k, 1) for k in (jvm.java.lang.Class, jvm.java.lang.Object))
    kinds[0], values[0] = jvm.java.lang.Long.TYPE, before
    loader = place.getClass().getClassLoader()
    method = loader.loadClass("org.apache.kafka.clients.admin.RecordsToDelete").getMethod("beforeOffset", kinds)
    with admin(spark, broker) as client:
        client.deleteRecords({place: method.invoke(None, values)}).all().get()


def produce(messages: DataFrame, broker: Broker, topic: str) -> None:
    """Send messages to their partitions in the order of their offsets."""
    rows = messages.select("partition", "key", "value", "offset").coalesce(1).sortWithinPartitions("offset")
    rows.drop("offset").write.format("kafka").option("kafka.bootstrap.servers", f"127.0.0.1:{broker.plain}").option(
        "topic", topic
    ).save()


def _free_ports(n: int) -> list[int]:
    sockets = [socket.socket() for _ in range(n)]
    try:
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()


def killed(process: subprocess.Popen[Any]) -> None:
    """Kill a process and all that it started, as by ``kill -9``."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
