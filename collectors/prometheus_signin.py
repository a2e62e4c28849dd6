"""What a Prometheus is shown: headers, a password, certificates. Files are read anew each time."""

import ssl
from dataclasses import dataclass, field
from pathlib import Path

from requests.auth import HTTPBasicAuth

from data.errors import SourceNotConfiguredError
from data.small_files import read_small_file
from data.source_settings import PrometheusSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class SignIn:
    """Headers to send, user and password as UTF-8, what to trust and what certificate to show."""

    headers: dict[str, str] = field(repr=False)
    auth: HTTPBasicAuth | None = field(repr=False)
    verify: str | bool
    cert: str | tuple[str, str] | None


def read_sign_in(settings: PrometheusSettings) -> SignIn:
    """Return what the settings and their files say now. Errors: SourceNotConfiguredError."""
    headers: dict[str, str] = {}
    if settings.headers_file:
        headers = _headers(_text(settings.headers_file, "prometheus.headers_file"))
    token = settings.bearer_token
    if settings.bearer_token_file:
        token = _text(settings.bearer_token_file, "prometheus.bearer_token_file").strip()
    if token:
        headers["Authorization"] = f"Bearer {token}"
    user = settings.username
    certificate, key = settings.client_cert_file, settings.client_key_file
    _check_certificates(settings)
    return SignIn(
        headers=headers,
        # As bytes: requests would encode text as Latin-1, or fail.
        auth=HTTPBasicAuth(user.encode(), settings.password.encode()) if user else None,
        verify=settings.ca_file or True,
        cert=((certificate, key) if key else certificate) or None,
    )


def without_credentials(url: str) -> str:
    """Return the address fit for messages."""
    scheme, mark, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{mark}{host.rpartition('@')[2]}{slash}{path}"


def _check_certificates(settings: PrometheusSettings) -> None:
    """Load them once: else a wrong file would look like a server that does not answer."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        if settings.ca_file:
            setting = "prometheus.ca_file"
            context.load_verify_locations(settings.ca_file)
        if settings.client_cert_file:
            setting = "prometheus.client_cert_file"
            # Without a password an encrypted key would ask for one on the terminal.
            context.load_cert_chain(
                settings.client_cert_file, settings.client_key_file or None, password=""
            )
    except OSError as error:
        raise SourceNotConfiguredError(
            f"{setting}: not usable as PEM: {getattr(error, 'reason', None) or error.strerror}",
            "Give a readable file, the key that belongs to the certificate, and no password on it.",
        ) from error


def _text(path: str, setting: str) -> str:
    try:
        return read_small_file(Path(path).expanduser()).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceNotConfiguredError(
            f"{setting}: cannot read {path}: {getattr(error, 'strerror', 'no UTF-8 text')}",
            "Give a file that this process can read.",
        ) from error


def _headers(text: str) -> dict[str, str]:
    found = {}
    for line in filter(str.strip, text.splitlines()):
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise SourceNotConfiguredError(
                "prometheus.headers_file has a line that is no `Name: value`",
                "Write one header a line.",
            )
        found[name.strip()] = value.strip()
    return found
