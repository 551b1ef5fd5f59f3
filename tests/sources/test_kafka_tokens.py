"""OAUTHBEARER at a real broker: a token without a signature, of an identity provider, and out of a file."""

from __future__ import annotations

import json
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from broker import OAUTH, USER, Broker
from topics import create

from ticdc_lab.errors import SourceError
from ticdc_lab.sources.kafka import topics_of
from ticdc_lab.sources.kafka_reading import TopicReader

BEARER = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "OAUTHBEARER"}


def token(lasts_s: float = 3600) -> str:
    """A JWT without a signature, as this broker takes it."""
    now = time.time()
    parts = ({"alg": "none"}, {"sub": USER, "iat": now, "exp": now + lasts_s})
    return "".join(urlsafe_b64encode(json.dumps(p).encode()).decode().rstrip("=") + "." for p in parts)


@contextmanager
def identity_provider(asked: list[dict[str, list[str]]]) -> Iterator[str]:
    """Give the address of one that hands out tokens."""

    class Provider(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            asked.append(parse_qs(body) | {"authorization": [self.headers.get("Authorization", "")]})
            answer = json.dumps({"access_token": token(), "token_type": "Bearer", "expires_in": 3600}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Provider)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/token"
    server.shutdown()


def spans(broker: Broker, **more: str) -> object:
    """What a reader with these settings sees of a topic."""
    given = BEARER | {f"kafka.{name.replace('_', '.')}": value for name, value in more.items()}
    with TopicReader(topics_of(broker.url("tokens", sasl=True), given)) as reader:
        return reader.spans()


def test_tokens_let_us_in(broker: Broker, tmp_path: Path) -> None:
    """Java's settings for each of them; a file may be renewed by another program."""
    create(f"127.0.0.1:{broker.plain}", "tokens")
    there = {("tokens", 0): (0, 0)}
    assert spans(broker, sasl_jaas_config=f'{OAUTH} unsecuredLoginStringClaim_sub="{USER}";') == there
    asked: list[dict[str, list[str]]] = []
    with identity_provider(asked) as url:
        login = f'{OAUTH} clientId="me" clientSecret="s3cr" scope="read";'
        assert spans(broker, sasl_jaas_config=login, sasl_oauthbearer_token_endpoint_url=url) == there
    assert asked[0]["grant_type"] == ["client_credentials"] and asked[0]["scope"] == ["read"]
    file = tmp_path / "a token"
    file.write_text(token() + "\n")
    found = spans(broker, sasl_jaas_config=f"{OAUTH};", sasl_oauthbearer_token_endpoint_url=file.as_uri())
    assert found == there


def test_a_token_that_is_none_or_too_old_keeps_us_out(broker: Broker, tmp_path: Path) -> None:
    """The file is named, and no part of the token."""
    file = tmp_path / "t"
    file.write_text("s3cr")
    with pytest.raises(SourceError, match="contains no token for OAUTHBEARER"):
        spans(broker, sasl_jaas_config=f"{OAUTH};", sasl_oauthbearer_token_endpoint_url=file.as_uri())
    file.write_text(token(-60))
    with pytest.raises(SourceError, match="expired at") as caught:
        spans(broker, sasl_jaas_config=f"{OAUTH};", sasl_oauthbearer_token_endpoint_url=file.as_uri())
    assert str(file) in caught.value.message and token()[:20] not in str(caught.value)
