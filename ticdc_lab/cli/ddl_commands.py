"""Commands of DDL as a Service."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import click

from ticdc_lab.cli.common import CLEAN, FAILED, guarded, main


@main.group("ddl-service")
def ddl_service() -> None:
    """Workers that own the DDL of many clusters, really running."""


@ddl_service.command()
@click.option("--listen", default="127.0.0.1:10080", show_default=True, metavar="HOST:PORT", help="Of the HTTP API.")
@click.option(
    "--node-id", default="ddl-service-node-1", show_default=True, help="Of this worker, unique in its service."
)
@click.option(
    "--store", default="ddl-service", show_default=True, type=click.Path(file_okay=False, path_type=Path),
    help="The folder of the embedded store; workers that share it are one service.",
)  # fmt: skip
@click.option("--ttl", default=10.0, show_default=True, type=click.FloatRange(0.5), help="Of sessions, seconds.")
@click.option("--version", default="v8.5.0", show_default=True, help="The newest cluster version that is served.")
@click.option("--oldest", default="v6.1.0", show_default=True, help="The oldest.")
@click.option("--secret-file", type=click.Path(exists=True, path_type=Path), help="Callers must know what is in it.")
@click.option("--tls-cert", type=click.Path(exists=True, path_type=Path), help="The worker's certificate (PEM).")
@click.option("--tls-key", type=click.Path(exists=True, path_type=Path), help="Its key.")
@click.option("--tls-client-ca", type=click.Path(exists=True, path_type=Path), help="Who must have signed callers.")
@click.option("--debug", is_flag=True, help="Show the whole trace of an error.")
@guarded
def serve(
    listen: str, node_id: str, store: Path, ttl: float, version: str, oldest: str, secret_file: Path | None,
    tls_cert: Path | None, tls_key: Path | None, tls_client_ca: Path | None,
) -> None:  # fmt: skip
    """Run one worker; several with the same store are one service.

    Only this host can reach it unless --listen says otherwise, and then callers need the secret or a certificate.
    """
    from ticdc_lab.ddl_service.serving import Listening
    from ticdc_lab.ddl_service.serving import serve as run
    from ticdc_lab.ddl_service.sqlite_store import SqliteStore
    from ticdc_lab.simulate.ddl_service.connection import Terms
    from ticdc_lab.simulate.ddl_service.settings import Duties
    from ticdc_lab.simulate.ddl_service.versions import Versions, parsed

    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise click.BadParameter(f"{listen!r}; expected HOST:PORT", param_hint="--listen")
    if not parsed(version) or not parsed(oldest):
        raise click.BadParameter("expected vMAJOR.MINOR.PATCH", param_hint="--version, --oldest")
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(message)s")
    secret = secret_file.read_text(encoding="utf-8").strip() if secret_file else None
    if secret_file and not secret:
        raise click.BadParameter(f"{secret_file} is empty", param_hint="--secret-file")
    listening = Listening(host.strip("[]"), int(port), secret, tls_cert, tls_key, tls_client_ca)
    ttl_us = int(ttl * 1e6)
    duties = Duties(Versions(version, oldest), Terms(ttl_us, ttl_us // 5))
    told = f"{node_id} listens on {host}"
    ended_well = run(
        node_id, SqliteStore(store), listening, duties, ready=lambda at: click.echo(f"{told}:{at}", err=True)
    )
    sys.exit(CLEAN if ended_well else FAILED)
