"""Commands that ask a running DDL service."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ticdc_lab.cli.common import CLEAN, FINDINGS, guarded, json_flag
from ticdc_lab.cli.ddl_commands import FILE, SECONDS, Where, ddl_service, secret_of, store_options

if TYPE_CHECKING:
    from ticdc_lab.ddl_core.records import Job
    from ticdc_lab.ddl_service.api import RegisteredCluster
    from ticdc_lab.ddl_service.client import Client

MOST_ROWS = 1 << 62
CLIENT = ("url", "secret_file", "ca", "cert", "key")


def client_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add whom to ask, and give the command a client; every error ends in a sentence."""

    def run(*args: Any, **kwargs: Any) -> None:
        command(*args, client=_client(**{name: kwargs.pop(name) for name in CLIENT}), **kwargs)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    options = (
        click.option(
            "--url",
            multiple=True,
            default=["http://127.0.0.1:10080"],
            show_default=True,
            help="Address of a worker; may be repeated.",
        ),
        click.option("--secret-file", type=FILE, help="A file with the secret that workers require."),
        click.option("--ca", type=FILE, help="The authority that signed the workers' certificates (PEM)."),
        click.option("--cert", type=FILE, help="The caller's certificate; needs --key."),
        click.option("--key", type=FILE, help="The key of --cert."),
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
@click.option(
    "--version",
    help="Version of its tidb-servers. Default: what the cluster reports, else what it had, else the "
    "newest that all workers serve.",
)
@client_options
def register(client: Client, cluster: str, store_addr: str, version: str | None) -> None:
    """Register a cluster, or update it."""
    found = client.register(cluster, store_addr, version=version)
    click.echo(f"{found.id}: {found.schedule.status}")


@ddl_service.command()
@click.argument("cluster")
@click.option("--force", is_flag=True, help="Remove it although jobs are in its queue; they stay there.")
@client_options
def remove(client: Client, cluster: str, force: bool) -> None:
    """Unregister a cluster: its own tidb-servers run its DDL again.

    A cluster with jobs in its queue is refused: wait until they have ended. With --force the jobs stay in the queue.
    They continue when a worker owns the cluster's DDL again.
    """
    client.remove(cluster, force=force)
    click.echo(f"{cluster} is not registered any more")


@ddl_service.command("list")
@json_flag
@client_options
def listed(client: Client, as_json: bool) -> None:
    """List registered clusters, and who owns their DDL."""
    found = client.clusters()
    if as_json:
        _print_json(found)
        return
    if not found:
        click.echo("No cluster is registered. Register one: ticdc-lab ddl-service register ID tikv://PD:2379", err=True)
    for c in found:
        click.echo(f"{c.id}  {c.store_addr}  {c.version}  {c.schedule.assigned_to or '-'}  {c.schedule.status}")


@ddl_service.command()
@json_flag
@client_options
def workers(client: Client, as_json: bool) -> None:
    """List workers, and what they own."""
    found = client.workers()
    if as_json:
        _print_json(found)
        return
    for w in found:
        owned = [a.cluster_id for a in w.assignments if a.schedule.status == "OWNER"]
        click.echo(f"{w.id}  owns {len(owned)} of {len(w.assignments)}: {', '.join(owned)}")


@ddl_service.command()
@click.argument("cluster")
@click.argument("kind")
@click.argument("table")
@click.argument("name", default="")
@click.option(
    "--rows",
    default=0,
    type=click.IntRange(0, MOST_ROWS),
    help="Rows of the table, which an `add index` has to backfill.",
)
@click.option("--sent-by", default="", help="Version of the tidb-server that sends it; default: the cluster's.")
@click.option("--request", default="", help="Idempotency key: the same key sent twice is one job.")
@click.option("--within", default=60.0, show_default=True, type=SECONDS, help="How long to wait for the job's end.")
@store_options
@client_options
def submit(
    client: Client, where: Where, cluster: str, kind: str, table: str, name: str, rows: int, sent_by: str, request: str,
    within: float,
) -> None:  # fmt: skip
    """Send a DDL job to a cluster's queue and follow it.

    This process plays the tidb-server that sends the job, and writes into the workers' store (--store or --etcd).

    Exit 1: the job was rejected or rolled back.
    """
    from ticdc_lab.ddl_core.jobs import LADDERS
    from ticdc_lab.ddl_core.records import DONE
    from ticdc_lab.ddl_core.server_state import Submit
    from ticdc_lab.ddl_core.settings import parsed
    from ticdc_lab.ddl_service.submitting import is_name, submitted

    if sent_by and not parsed(sent_by):
        raise click.BadParameter("expected vMAJOR.MINOR.PATCH", param_hint="--sent-by")
    for hint, text in (("TABLE", table), ("NAME", name), ("KIND", kind), ("--request", request)):
        if not is_name(text):
            raise click.BadParameter("expected at most 64 letters that are text", param_hint=hint)
    if kind not in LADDERS:
        raise click.BadParameter(f"{kind!r}; expected {', '.join(LADDERS)}", param_hint="KIND")
    if bool(name) == kind.endswith("table"):
        what = "the table's name alone" if name else f"the {kind.split()[1]}'s name after the table's"
        raise click.BadParameter(f"{kind} takes {what}", param_hint="NAME")
    registered = _registered(client, cluster)
    where.expect_store()
    said: list[str] = []

    def told(job: Job) -> None:
        line = f"job {job.id}: {job.schema_state or job.state}"
        if line not in said[-1:]:
            said.append(line)
            click.echo(f"{line}, schema version {job.schema_version}" if job.schema_version else line)

    wish = Submit(kind, table, name, rows, request=request)
    version = sent_by or _version_of(registered)
    job = submitted(where.open, _store_of(registered), wish, version=version, within_s=within, told=told)
    click.echo(f"job {job.id}: {job.state}" + (f" ({job.error})" if job.error else ""))
    sys.exit(CLEAN if job.state == DONE else FINDINGS)


@ddl_service.command("show-ddl")
@click.argument("cluster")
@click.option("--within", default=60.0, show_default=True, type=SECONDS, help="How long to wait.")
@json_flag
@store_options
@client_options
def show_ddl(client: Client, where: Where, cluster: str, within: float, as_json: bool) -> None:
    """Show what `admin show ddl` shows a user of the cluster.

    The owner's address is shown only if a tidb-server is the owner. The service publishes no address of its workers.
    """
    from ticdc_lab.ddl_service.submitting import shown

    store = _store_of(_registered(client, cluster))
    where.expect_store()
    found = shown(where.open, store, within_s=within)
    if as_json:
        _print_json(found._asdict())
        return
    click.echo(found.told)


@ddl_service.command()
@click.argument("cluster")
@click.argument("job", type=click.IntRange(1))
@click.option("--within", default=60.0, show_default=True, type=SECONDS, help="How long to wait.")
@store_options
@client_options
def cancel(client: Client, where: Where, cluster: str, job: int, within: float) -> None:
    """Ask that a job be cancelled.

    Its changes are rolled back, if that is still possible.

    Exit 1: there is nothing to cancel.
    """
    from ticdc_lab.ddl_core.records import DONE
    from ticdc_lab.ddl_service.submitting import cancelled

    registered = _registered(client, cluster)
    where.expect_store()
    said = cancelled(where.open, _store_of(registered), job, version=_version_of(registered), within_s=within)
    click.echo(f"job {job}: cancelling" if said == DONE else said)
    sys.exit(CLEAN if said == DONE else FINDINGS)


def _print_json(found: Any) -> None:
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(found)))


def _registered(client: Client, cluster: str) -> RegisteredCluster:
    found = next((c for c in client.clusters() if c.id == cluster), None)
    if found is None:
        raise click.BadParameter(f"{cluster} is not registered", param_hint="CLUSTER")
    return found


def _store_of(cluster: RegisteredCluster) -> str:
    return cluster.store or cluster.store_addr  # a worker of an earlier version knows a store by its addresses


def _version_of(cluster: RegisteredCluster) -> str:
    return cluster.version or "v6.5.0"  # a tidb-server of another one would upgrade the cluster's meta
