"""A canary in every secret setting, found by what the settings declare: no list to keep in step."""

import dataclasses
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from data.base.errors import SettingsError
from data.settings.all_settings import Settings
from data.settings.fields import settings_in

MARK = "canary7f3a"
"""In every secret value, and nowhere else."""


def variable(section: str, name: str) -> str:
    """The environment variable of a setting."""
    return f"TRIMTAB_{section}_{name}".upper()


def every_setting() -> Iterator[tuple[str, Any, "dataclasses.Field[Any]"]]:
    """Section by name with its defaults, and each of its fields."""
    defaults = Settings()
    for section in fields(Settings):
        part = getattr(defaults, section.name)
        for entry in settings_in(part):
            yield section.name, part, entry


def secret_values(address: str) -> dict[str, str]:
    """A canary for each secret setting: a word, or an address or base64 where only one is taken."""
    found = {}
    for section, part, entry in every_setting():
        if not entry.metadata["secret"]:
            continue
        word = f"{MARK}-{section}-{entry.name}-{'x' * 32}"
        letters = "".join(filter(str.isalnum, word))
        in_base64 = letters + "x" * (-len(letters) % 4)
        found[variable(section, entry.name)] = next(
            form
            for form in (word, f"{address}/{word}", in_base64)
            if _is_taken(part, entry.name, form)
        )
    return found


def _is_taken(section: Any, name: str, word: str) -> bool:
    try:
        replace(section, **{name: word})
    except SettingsError:
        return False
    return True


def secret_files(folder: Path) -> dict[str, str]:
    """A file with a canary for each setting that names one which is kept secret."""
    found = {}
    for section, _part, entry in every_setting():
        if entry.name.endswith(("token_file", "secret_file", "headers_file", "key_file")):
            path = folder / f"{section}-{entry.name}"
            content = f"{MARK}-{section}-{entry.name}"
            path.write_text(f"X-Key: {content}\n" if "headers" in entry.name else content)
            found[variable(section, entry.name)] = str(path)
    return found


@dataclass
class Adversary:
    """Servers that refuse everything, and say back all that they were told."""

    port: int = 0
    mail_port: int = 0
    told: list[str] = field(default_factory=list)

    @property
    def address(self) -> str:
        """Of the web server."""
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def running_adversary() -> Iterator[Adversary]:
    """Serve HTTP and SMTP on loopback until the block ends."""
    adversary = Adversary()

    class Echo(BaseHTTPRequestHandler):
        def answer(self) -> None:
            text = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            said = f"401 {self.path} {dict(self.headers)} {text}"
            adversary.told.append(said)
            self.send_response(401, "not you")
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(said.encode())))
            self.end_headers()
            self.wfile.write(said.encode())

        do_GET = do_POST = do_PUT = answer  # noqa: N815 - names that the server looks for

        def log_message(self, *_arguments: object) -> None:
            """Say nothing."""

    class Mail(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 mail\r\n")
            while line := self.rfile.readline():
                adversary.told.append(line.decode())
                if line.upper().startswith(b"EHLO"):
                    self.wfile.write(b"250-mail\r\n250 AUTH PLAIN LOGIN\r\n")
                else:
                    self.wfile.write(b"535 refused: " + line)

    with (
        ThreadingHTTPServer(("127.0.0.1", 0), Echo) as web,
        socketserver.ThreadingTCPServer(("127.0.0.1", 0), Mail) as mail,
    ):
        mail.daemon_threads = True
        adversary.port, adversary.mail_port = web.server_address[1], mail.server_address[1]
        threads = [
            threading.Thread(target=entry.serve_forever, args=(0.02,)) for entry in (web, mail)
        ]
        for thread in threads:
            thread.start()
        try:
            yield adversary
        finally:
            for server in (web, mail):
                server.shutdown()
            for thread in threads:
                thread.join()


def environment(adversary: Adversary, folder: Path, way: str) -> dict[str, str]:
    """Variables with every secret set, and every source and channel leading to the adversary.

    Those of chats are left out: they are refused where everybody is the admin.
    `way`: how Prometheus and slurmrestd are signed in to, since they take one way at a time.
    """
    secrets = secret_values(adversary.address)
    files = secret_files(folder)
    dropped = {
        "token": ("PROMETHEUS_BEARER_TOKEN_FILE", "PROMETHEUS_PASSWORD", "REST_TOKEN_FILE"),
        "password": ("PROMETHEUS_BEARER_TOKEN", "PROMETHEUS_BEARER_TOKEN_FILE", "REST_TOKEN_FILE"),
        "file": ("PROMETHEUS_BEARER_TOKEN", "PROMETHEUS_PASSWORD", "REST_TOKEN"),
    }[way]
    kept = {
        name: value
        for name, value in (secrets | files).items()
        if not name.endswith(dropped) and "KEY_FILE" not in name and "_CHAT_" not in name
    }
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(
        f"""
apiVersion: v1
kind: Config
current-context: c
clusters: [{{name: c, cluster: {{server: "{adversary.address}"}}}}]
users: [{{name: u, user: {{token: {MARK}-kubeconfig}}}}]
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
"""
    )
    signed = f"http://user:{MARK}-in,url;x@127.0.0.1:{adversary.port}"
    return kept | {
        "TRIMTAB_PROMETHEUS_URL": signed if way == "file" else adversary.address,
        "TRIMTAB_PROMETHEUS_USERNAME": "user" if way == "password" else "",
        "TRIMTAB_SLURM_MODE": "rest",
        "TRIMTAB_SLURM_REST_URL": adversary.address,
        "TRIMTAB_SLURM_REST_USER": "user",
        "TRIMTAB_KUBERNETES_ENABLED": "true",
        "TRIMTAB_KUBERNETES_KUBECONFIG": str(kubeconfig),
        "TRIMTAB_NOTIFY_MAIL_TO": "ops@site.example",
        "TRIMTAB_NOTIFY_SMTP_URL": f"smtp://user@127.0.0.1:{adversary.mail_port}",
        "TRIMTAB_REPORT_MAIL_TO": "ops@site.example",
        "TRIMTAB_REPORT_WEBHOOK": "true",
        "TRIMTAB_APPLY_DIRECTORY": str(folder / "changes"),
        "TRIMTAB_APPLY_STOP_FILE": str(folder / "STOP"),
    }
