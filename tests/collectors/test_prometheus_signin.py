"""Signing in: at a real Prometheus by password and certificates, and by tokens and headers."""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from beds.faulty_server import answers, faulty_server, says
from beds.prometheus_options import prometheus_with

from collectors.prometheus.client import PrometheusClient
from data.base.errors import SourceNotConfiguredError, SourceRefusedError
from data.settings.sources import PrometheusSettings

PASSWORD = "gär ten"  # noqa: S105 - made for this test
PASSWORD_HASH = "$2b$04$3jDOlc1ell.2wybTauUv.OVk.V7SKFMAn3t1xRUWp0rj0PQ3WqpCa"  # noqa: S105
NO_METRICS: frozenset[str] = frozenset()


def asked(url: str, **options: Any) -> frozenset[str]:
    """The metric names that one collection gets."""
    client = PrometheusClient(PrometheusSettings(url=url, **options))
    client.begin()
    return client.metric_names()


@dataclass(frozen=True, kw_only=True)
class Certificates:
    """PEM files: a CA, and a certificate with its key for the server and for a client."""

    ca: Path
    server: tuple[Path, Path]
    client: tuple[Path, Path]


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60)


def _signed(folder: Path, name: str, extension: str) -> tuple[Path, Path]:
    key, request, certificate = (folder / f"{name}.{kind}" for kind in ("key", "csr", "pem"))
    extensions = folder / f"{name}.ext"
    extensions.write_text(extension)
    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    _openssl(*new, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
    _openssl(
        *("x509", "-req", "-in", request, "-CA", folder / "ca.pem", "-CAkey", folder / "ca.key"),
        *("-CAcreateserial", "-days", "2", "-extfile", extensions, "-out", certificate),
    )
    return certificate, key


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates of a CA made for these tests."""
    folder = tmp_path_factory.mktemp("certificates")
    new = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    _openssl(
        *(*new, "-keyout", folder / "ca.key", "-out", folder / "ca.pem"),
        *("-days", "2", "-subj", "/CN=Test CA"),
    )
    return Certificates(
        ca=folder / "ca.pem",
        server=_signed(folder, "server", "subjectAltName=IP:127.0.0.1"),
        client=_signed(folder, "client", "extendedKeyUsage=clientAuth"),
    )


def web_config(folder: Path, text: str) -> str:
    """The option that names a web configuration of this text."""
    path = folder / "web.yml"
    path.write_text(text, encoding="utf-8")
    return f"--web.config.file={path}"


@pytest.mark.prometheus
def test_a_password_signs_in(tmp_path: Path) -> None:
    """Basic authentication works beyond ASCII; a wrong password is refused and not repeated."""
    option = web_config(tmp_path, f'basic_auth_users: {{watcher: "{PASSWORD_HASH}"}}\n')
    with prometheus_with(tmp_path, option) as url:
        assert asked(url, username="watcher", password=PASSWORD) == NO_METRICS
        with pytest.raises(SourceRefusedError, match="401") as caught:
            asked(url, username="watcher", password="open sesame")  # noqa: S106
        assert "sesame" not in str(caught.value)
        with pytest.raises(SourceRefusedError, match="401"):
            asked(url)


@pytest.mark.prometheus
def test_a_server_is_trusted_by_its_ca(tmp_path: Path, certificates: Certificates) -> None:
    """A CA of one's own is trusted when named; without it nothing is said to the server."""
    certificate, key = certificates.server
    option = web_config(
        tmp_path, f"tls_server_config: {{cert_file: {certificate}, key_file: {key}}}\n"
    )
    with prometheus_with(tmp_path, option, scheme="https") as url:
        assert asked(url, ca_file=str(certificates.ca)) == NO_METRICS
        with pytest.raises(SourceRefusedError, match="no trusted connection") as caught:
            asked(url)
        assert "prometheus.ca_file" in caught.value.hint
        with pytest.raises(SourceRefusedError, match="not valid for"):
            asked(url.replace("127.0.0.1", "localhost"), ca_file=str(certificates.ca))
        with pytest.raises(SourceRefusedError, match="400"):
            asked(url.replace("https", "http"))


@pytest.mark.prometheus
def test_both_sides_show_certificates(tmp_path: Path, certificates: Certificates) -> None:
    """Mutual TLS works with certificate and key, and says what is missing without."""
    certificate, key = certificates.server
    option = web_config(
        tmp_path,
        f"tls_server_config:\n  cert_file: {certificate}\n  key_file: {key}\n"
        f"  client_ca_file: {certificates.ca}\n  client_auth_type: RequireAndVerifyClientCert\n",
    )
    ours, our_key = map(str, certificates.client)
    with prometheus_with(tmp_path, option, scheme="https") as url:
        trusted = {"ca_file": str(certificates.ca)}
        assert asked(url, **trusted, client_cert_file=ours, client_key_file=our_key) == NO_METRICS
        with pytest.raises(SourceRefusedError, match="no trusted connection") as caught:
            asked(url, **trusted)
        assert "prometheus.client_cert_file" in caught.value.hint
        with pytest.raises(SourceNotConfiguredError, match="client_cert_file"):
            asked(url, **trusted, client_cert_file=ours, client_key_file=str(key))


@pytest.mark.parametrize("setting", ["ca_file", "client_cert_file"])
def test_a_file_that_is_no_certificate_is_named(tmp_path: Path, setting: str) -> None:
    """Certificates that cannot be read are a wrong setting, not a server that is down."""
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("nonsense")
    with pytest.raises(SourceNotConfiguredError, match=setting):
        asked("https://127.0.0.1:9", **{setting: str(nonsense)})


@pytest.mark.parametrize(
    "setting", ["bearer_token_file", "headers_file", "ca_file", "client_cert_file"]
)
def test_a_missing_file_is_named(tmp_path: Path, setting: str) -> None:
    """A file that is not there is told by its setting before anything is asked."""
    with faulty_server(answers([])) as server:
        with pytest.raises(SourceNotConfiguredError, match=f"prometheus.{setting}"):
            asked(server.url, **{setting: str(tmp_path / "absent")})
        assert server.asked == []


def test_files_are_read_at_each_collection(tmp_path: Path) -> None:
    """A rotated token and changed headers count from the next collection on; old ones are gone."""
    token, headers = tmp_path / "token", tmp_path / "headers"
    with faulty_server(answers([])) as server:
        client = PrometheusClient(
            PrometheusSettings(
                url=server.url, bearer_token_file=str(token), headers_file=str(headers)
            )
        )
        for entry, more in (
            ("first", "X-Scope-OrgID: a\nX-Old: b\n"),
            ("second", "X-Scope-OrgID: c"),
        ):
            token.write_text(f"{entry}\n")
            headers.write_text(more)
            client.begin()
            client.metric_names()
        (_, _, old), (_, _, new) = server.asked
    assert (old["Authorization"], new["Authorization"]) == ("Bearer first", "Bearer second")
    assert (old["X-Scope-OrgID"], new["X-Scope-OrgID"]) == ("a", "c")
    assert "X-Old" in old
    assert "X-Old" not in new


@pytest.mark.parametrize("secret", ["two\nlines-of-canary", "canary\N{SNOWMAN}"])
def test_a_token_that_is_no_header_is_not_quoted(tmp_path: Path, secret: str) -> None:
    """What cannot be sent is named by its setting; the secret stays out of the message."""
    token = tmp_path / "token"
    token.write_text(secret, encoding="utf-8")
    with faulty_server(answers([])) as server:
        with pytest.raises(SourceNotConfiguredError, match="characters") as caught:
            asked(server.url, bearer_token_file=str(token))
        assert "canary" not in str(caught.value)
        assert "bearer_token" in caught.value.hint


def test_credentials_in_the_address_stay_out_of_messages() -> None:
    """An address with user and password is used with both and named without."""
    with faulty_server(says(401, b"no"), names=()) as server:
        with pytest.raises(SourceRefusedError, match=r"http://127\.0\.0\.1:\d+ refused") as caught:
            asked(server.url.replace("://", "://watcher:canary@"))
        assert "canary" not in str(caught.value)
        assert server.asked[0][2]["Authorization"].startswith("Basic ")
