"""An identity provider on loopback: discovery, authorization codes, keys and signed id tokens.

Enough of OpenID Connect for one client, checked as a provider checks: the client's secret, the
redirect address, the code used once, its challenge. `flaw` makes its tokens wrong in one way.
"""

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

FLAWS = ("expired", "nonce", "issuer", "audience", "foreign key", "unsigned", "changed")
"""Ways in which a token must not be believed."""


@dataclass
class Provider:
    """Who signs in next, as which claims; what was asked and refused so far."""

    client_id: str
    client_secret: str
    redirect_uri: str = ""
    base: str = ""
    claims: dict[str, Any] = field(default_factory=dict)
    flaw: str = ""
    tokens: int = 0
    refused: list[str] = field(default_factory=list)
    _codes: dict[str, dict[str, str]] = field(default_factory=dict)
    _key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "key-1"}))

    @property
    def metadata_url(self) -> str:
        """Where its discovery document is."""
        return f"{self.base}/.well-known/openid-configuration"

    def document(self) -> dict[str, Any]:
        """The discovery document."""
        return {
            "issuer": self.base,
            "authorization_endpoint": f"{self.base}/authorize",
            "token_endpoint": f"{self.base}/token",
            "jwks_uri": f"{self.base}/keys",
            "end_session_endpoint": f"{self.base}/logout",
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "code_challenge_methods_supported": ["S256"],
        }

    def keys(self) -> dict[str, Any]:
        """The public key."""
        return {"keys": [self._key.as_dict(private=False) | {"use": "sig", "alg": "RS256"}]}

    def authorize(self, asked: dict[str, str]) -> str:
        """Where the browser goes next: back, with a code, the person being signed in here."""
        if asked.get("client_id") != self.client_id or asked["redirect_uri"] != self.redirect_uri:
            self.refused.append("authorize")
            return f"{self.base}/refused"
        code = secrets.token_urlsafe(16)
        self._codes[code] = asked
        return f"{self.redirect_uri}?{urlencode({'code': code, 'state': asked['state']})}"

    def token(self, given: dict[str, str], authorization: str) -> dict[str, Any] | None:
        """The tokens for a code, None when it is not to be had."""
        asked = self._codes.pop(given.get("code", ""), None)
        pair = f"{self.client_id}:{self.client_secret}"
        challenge = hashlib.sha256(given.get("code_verifier", "").encode()).digest()
        proven = base64.urlsafe_b64encode(challenge).rstrip(b"=").decode()
        if (
            asked is None
            or authorization != f"Basic {base64.b64encode(pair.encode()).decode()}"
            or given.get("redirect_uri") != self.redirect_uri
            or asked.get("code_challenge") != proven
        ):
            self.refused.append("token")
            return None
        self.tokens += 1
        made = self.id_token(asked["nonce"])
        return {"access_token": "opaque", "token_type": "Bearer", "id_token": made}

    def id_token(self, nonce: str) -> str:
        """The id token, with the flaw that was asked for."""
        now = int(time.time())
        claims: dict[str, Any] = {
            "iss": self.base,
            "aud": self.client_id,
            "sub": "1",
            "iat": now,
            "exp": now + 600,
            "nonce": nonce,
        } | self.claims
        wrong = {
            "expired": {"exp": now - 3600, "iat": now - 7200},
            "nonce": {"nonce": "another"},
            "issuer": {"iss": "http://127.0.0.1:1"},
            "audience": {"aud": "another"},
        }
        claims |= wrong.get(self.flaw, {})
        return self._signed(claims)

    def logout_token(self, **changes: Any) -> str:
        """An order to end sessions, with these claims; None leaves one out."""
        now = int(time.time())
        claims: dict[str, Any] = {
            "iss": self.base,
            "aud": self.client_id,
            "iat": now,
            "exp": now + 120,
            "jti": secrets.token_hex(8),
            "events": {"http://schemas.openid.net/event/backchannel-logout": {}},
        } | changes
        return self._signed({name: claim for name, claim in claims.items() if claim is not None})

    def change_keys(self) -> None:
        """Sign by a new key from now on; the old one is no longer listed."""
        number = int(self._key.kid.removeprefix("key-")) + 1
        self._key = RSAKey.generate_key(2048, {"kid": f"key-{number}"})

    def _signed(self, claims: dict[str, Any]) -> str:
        head = {"alg": "RS256", "kid": self._key.kid}
        key: RSAKey | OctKey = self._key
        if self.flaw in ("foreign key", "unknown key"):
            key = RSAKey.generate_key(2048)
        if self.flaw == "unknown key":
            head["kid"] = "another"
        if self.flaw == "secret":
            head["alg"], key = "HS256", OctKey.import_key(self.client_secret.ljust(32, "x"))
        token = jwt.encode(head, claims, key)
        head_text, body, signature = token.split(".")
        if self.flaw == "unsigned":
            return f"{_coded({'alg': 'none'})}.{body}."
        if self.flaw == "changed":
            return f"{head_text}.{_coded(claims | {'email': 'admin@site.example'})}.{signature}"
        return token


def _coded(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def _one_each(query: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(query).items()}


@contextmanager
def running_identity_provider(client_id: str, client_secret: str) -> Iterator[Provider]:
    """Serve on a free loopback port until the block ends."""
    provider = Provider(client_id, client_secret)

    class Handler(BaseHTTPRequestHandler):
        def answer(self, status: int, value: Any = None, location: str = "") -> None:
            body = json.dumps(value).encode()
            self.send_response(status)
            if location:
                self.send_header("Location", location)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            if parts.path == "/authorize":
                self.answer(302, location=provider.authorize(_one_each(parts.query)))
            elif parts.path == "/logout":
                back = _one_each(parts.query)["post_logout_redirect_uri"]
                self.answer(302, location=back)
            elif parts.path.endswith("openid-configuration"):
                self.answer(200, provider.document())
            elif parts.path == "/keys":
                self.answer(200, provider.keys())
            else:
                self.answer(404)

        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["Content-Length"])).decode()
            made = provider.token(_one_each(text), self.headers.get("Authorization", ""))
            self.answer(400 if made is None else 200, made or {"error": "invalid_grant"})

        def log_message(self, *_arguments: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        provider.base = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield provider
        finally:
            server.shutdown()
            thread.join()
