"""Commands of DDL as a Service: ``serve`` is a worker, ``audit`` reads what it wrote."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ticdc_lab.cli.common import CLEAN, FAILED, FINDINGS, guarded, main

if TYPE_CHECKING:
    from ticdc_lab.ddl_service.etcd_rpc import Etcd
    from ticdc_lab.ddl_service.node import Backend
    from ticdc_lab.simulate.ddl_service.versions import Versions

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@main.group("ddl-service")
def ddl_service() -> None:
    """Workers that own the DDL of many clusters, really running."""


def store_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add where the store is."""
    options = (
        click.option(
            "--store", default="ddl-service", show_default=True, type=click.Path(file_okay=False, path_type=Path),
            help="The folder of the embedded store; workers that share it are one service.",
        ),
        click.option("--etcd", metavar="HOST:PORT,..", help="A real etcd instead; https:// in front for TLS."),
        click.option("--etcd-ca", type=FILE, help="Who must have signed etcd's certificate (PEM)."),
        click.option("--etcd-cert", type=FILE, help="A certificate for etcd, with --etcd-key."),
        click.option("--etcd-key", type=FILE, help="Its key."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def version_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what is supported."""
    oldest = click.option("--oldest", default="v6.1.0", show_default=True, help="The oldest.")
    own = click.option(
        "--version", default="v8.5.0", show_default=True, help="The newest cluster version that is served."
    )
    return own(oldest(command))


def versions_of(version: str, oldest: str) -> Versions:
    """Read what is supported."""
    from ticdc_lab.simulate.ddl_service.versions import Versions, parsed

    if not parsed(version) or not parsed(oldest):
        raise click.BadParameter("expected vMAJOR.MINOR.PATCH", param_hint="--version, --oldest")
    return Versions(version, oldest)


def etcd_of(etcd: str, ca: Path | None, certificate: Path | None, key: Path | None) -> Etcd:
    """Give where etcd is."""
    from ticdc_lab.ddl_service.etcd_rpc import Etcd

    if (certificate is None) != (key is None):
        raise click.BadParameter("give both", param_hint="--etcd-cert, --etcd-key")
    return Etcd(etcd, ca, certificate, key)


def opener(
    store: Path, etcd: str | None, ca: Path | None, certificate: Path | None, key: Path | None
) -> Callable[[], Backend]:
    """Give what opens the store that the options name."""
    if etcd is None:
        from ticdc_lab.ddl_service.sqlite_store import SqliteStore

        return lambda: SqliteStore(store)
    from ticdc_lab.ddl_service.etcd_store import EtcdStore

    where = etcd_of(etcd, ca, certificate, key)
    return lambda: EtcdStore(where)


def secret_of(path: Path | None) -> str | None:
    """Read the shared secret."""
    if path is None:
        return None
    secret = path.read_text(encoding="utf-8").strip()
    if not secret:
        raise click.BadParameter(f"{path} is empty", param_hint="--secret-file")
    return secret


@ddl_service.command()
@click.option("--listen", default="127.0.0.1:10080", show_default=True, metavar="HOST:PORT", help="Of the HTTP API.")
@click.option(
    "--node-id", default="ddl-service-node-1", show_default=True, help="Of this worker, unique in its service."
)
@store_options
@click.option("--ttl", default=10.0, show_default=True, type=click.FloatRange(0.5), help="Of sessions, seconds.")
@version_options
@click.option("--secret-file", type=FILE, help="Callers must know what is in it.")
@click.option("--tls-cert", type=FILE, help="The worker's certificate (PEM).")
@click.option("--tls-key", type=FILE, help="Its key.")
@click.option("--tls-client-ca", type=FILE, help="Who must have signed callers.")
@click.option("--debug", is_flag=True, help="Show the whole trace of an error.")
@guarded
def serve(
    listen: str, node_id: str, store: Path, etcd: str | None, etcd_ca: Path | None, etcd_cert: Path | None,
    etcd_key: Path | None, ttl: float, version: str, oldest: str, secret_file: Path | None, tls_cert: Path | None,
    tls_key: Path | None, tls_client_ca: Path | None,
) -> None:  # fmt: skip
    """Run one worker; several with the same store are one service.

    Only this host can reach it unless --listen says otherwise, and then callers need the secret or a certificate.
    """
    from ticdc_lab.ddl_service.serving import Listening
    from ticdc_lab.ddl_service.serving import serve as run
    from ticdc_lab.simulate.ddl_service.connection import Terms
    from ticdc_lab.simulate.ddl_service.settings import Duties

    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise click.BadParameter(f"{listen!r}; expected HOST:PORT", param_hint="--listen")
    versions = versions_of(version, oldest)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(message)s")
    listening = Listening(host.strip("[]"), int(port), secret_of(secret_file), tls_cert, tls_key, tls_client_ca)
    ttl_us = int(ttl * 1e6)
    duties = Duties(versions, Terms(ttl_us, ttl_us // 5))
    told = f"{node_id} listens on {host}"
    backend = opener(store, etcd, etcd_ca, etcd_cert, etcd_key)()
    ended_well = run(node_id, backend, listening, duties, ready=lambda at: click.echo(f"{told}:{at}", err=True))
    sys.exit(CLEAN if ended_well else FAILED)


@ddl_service.command()
@store_options
@version_options
@click.option("--debug", is_flag=True, help="Show the whole trace of an error.")
@guarded
def audit(
    store: Path, etcd: str | None, etcd_ca: Path | None, etcd_cert: Path | None, etcd_key: Path | None,
    version: str, oldest: str,
) -> None:  # fmt: skip
    """Check all that was ever written to a store: never two owners of one cluster, jobs step by step, ...

    Exit code 1 says that something was not as it must be.
    """
    from ticdc_lab.ddl_service import history
    from ticdc_lab.ddl_service.auditing import violations

    if etcd is None:
        written = list(history.of_folder(store))
    else:
        written = history.of_etcd(etcd_of(etcd, etcd_ca, etcd_cert, etcd_key))
    found = violations(written, versions_of(version, oldest))
    for line in found:
        click.echo(line)
    click.echo(f"{len(written):,} changes, {len(found)} not as they must be")
    sys.exit(FINDINGS if found else CLEAN)
