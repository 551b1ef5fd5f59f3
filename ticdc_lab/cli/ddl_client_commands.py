"""Commands that ask a running DDL service."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from ticdc_lab.cli.common import CLEAN, FINDINGS, guarded, json_flag
from ticdc_lab.cli.ddl_commands import FILE, ddl_service, opener, secret_of, store_options

if TYPE_CHECKING:
    from ticdc_lab.ddl_service.client import Client
    from ticdc_lab.simulate.ddl_service.records import Job

CLIENT = ("url", "secret_file", "ca", "cert", "key")


def client_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add whom to ask, and give the command a client; every error ends in a sentence."""

    def run(*args: Any, **kwargs: Any) -> None:
        command(*args, client=_client(**{name: kwargs.pop(name) for name in CLIENT}), **kwargs)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    options = (
        click.option(
            "--url", multiple=True, default=["http://127.0.0.1:10080"], show_default=True, help="Of a worker."
        ),
        click.option("--secret-file", type=FILE, help="The secret that workers ask for is in it."),
        click.option("--ca", type=FILE, help="Who must have signed the workers' certificates (PEM)."),
        click.option("--cert", type=FILE, help="The caller's certificate, with --key."),
        click.option("--key", type=FILE, help="Its key."),
        click.option("--debug", is_flag=True, help="Show the whole trace of an error."),
    )
    wrapped: Callable[..., Any] = guarded(run)
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped


def _client(
    url: tuple[str, ...], secret_file: Path | None, ca: Path | None, cert: Path | None, key: Path | None
) -> Client:
    from ticdc_lab.ddl_service.client import Client

    if (cert is None) != (key is None):
        raise click.BadParameter("give both", param_hint="--cert, --key")
    pair = (cert, key) if cert and key else None
    return Client(url, secret=secret_of(secret_file), ca=ca, certificate=pair)


@ddl_service.command()
@click.argument("cluster")
@click.argument("store_addr")
@click.option("--version", help="Of its tidb-servers; without it the one it has, or the service's own.")
@client_options
def register(client: Client, cluster: str, store_addr: str, version: str | None) -> None:
    """Register a cluster, or update it: ``register cluster1 tikv://192.168.1.100:2379``."""
    found = client.register(cluster, store_addr, version=version)
    click.echo(f"{found.id}: {found.schedule.status}")


@ddl_service.command()
@click.argument("cluster")
@client_options
def remove(client: Client, cluster: str) -> None:
    """Unregister a cluster: its DDL is its own again."""
    client.remove(cluster)
    click.echo(f"{cluster} is not registered any more")


@ddl_service.command("list")
@json_flag
@client_options
def listed(client: Client, as_json: bool) -> None:
    """List registered clusters, and who owns their DDL."""
    found = client.clusters()
    if as_json:
        rows = [{**c._asdict(), "schedule": c.schedule._asdict()} for c in found]
        click.echo(orjson.dumps(rows, option=orjson.OPT_INDENT_2))
        return
    for c in found:
        click.echo(f"{c.id}  {c.store_addr}  {c.schedule.assigned_to or '-'}  {c.schedule.status}")


@ddl_service.command()
@json_flag
@client_options
def workers(client: Client, as_json: bool) -> None:
    """List workers, and what they own."""
    found = client.workers()
    if as_json:
        rows = [{"id": w.id, "assignments": {c: s._asdict() for c, s in w.assignments}} for w in found]
        click.echo(orjson.dumps(rows, option=orjson.OPT_INDENT_2))
        return
    for w in found:
        owned = [c for c, s in w.assignments if s.status == "OWNER"]
        click.echo(f"{w.id}  owns {len(owned)} of {len(w.assignments)}: {', '.join(owned)}")


@ddl_service.command()
@click.argument("cluster")
@click.argument("kind")
@click.argument("table")
@click.argument("name", default="")
@click.option("--rows", default=0, type=click.IntRange(0), help="Of the table, to be backfilled by an `add index`.")
@click.option("--sent-by", default="v6.5.0", show_default=True, help="The version of the tidb-server that sends it.")
@click.option("--within", default=60.0, show_default=True, help="How long to wait for its end, seconds.")
@store_options
@client_options
def submit(
    client: Client, cluster: str, kind: str, table: str, name: str, rows: int, sent_by: str, within: float,
    store: Path, etcd: str | None, etcd_ca: Path | None, etcd_cert: Path | None, etcd_key: Path | None,
) -> None:  # fmt: skip
    """Send a DDL job to a cluster's queue, and follow it: ``submit cluster1 "add index" orders by_day --rows 1000``.

    The tidb-server that sends it is the model's, in this process, over the workers' store (--store or --etcd).
    Exit code 1 says that the job was rejected or rolled back.
    """
    from ticdc_lab.ddl_service.sqlite_file import FILE as STORE
    from ticdc_lab.ddl_service.submitting import submitted
    from ticdc_lab.simulate.ddl_service.records import DONE
    from ticdc_lab.simulate.ddl_service.server_state import Submit
    from ticdc_lab.simulate.ddl_service.versions import parsed

    if not parsed(sent_by):
        raise click.BadParameter("expected vMAJOR.MINOR.PATCH", param_hint="--sent-by")
    address = next((c.store_addr for c in client.clusters() if c.id == cluster), None)
    if address is None:
        raise click.BadParameter(f"{cluster} is not registered", param_hint="CLUSTER")
    if etcd is None and not (store / STORE).exists():
        raise click.BadParameter(f"{store} has no store of workers", param_hint="--store")
    said: list[str] = []

    def told(job: Job) -> None:
        line = f"job {job.id}: {job.schema_state or job.state}"
        if line not in said[-1:]:
            said.append(line)
            click.echo(f"{line}, schema version {job.schema_version}" if job.schema_version else line)

    open_store = opener(store, etcd, etcd_ca, etcd_cert, etcd_key)
    job = submitted(open_store, address, Submit(kind, table, name, rows), version=sent_by, within_s=within, told=told)
    click.echo(f"job {job.id}: {job.state}" + (f" ({job.error})" if job.error else ""))
    sys.exit(CLEAN if job.state == DONE else FINDINGS)
