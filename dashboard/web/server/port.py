"""Check that the port is free, before any long work."""

import errno
import socket

from data.base.errors import TrimtabError


def require_free_port(host: str, port: int) -> None:
    """Refuse (TrimtabError) a port that something else listens on."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise TrimtabError(
                f"port {port} on {host} is in use"
                if error.errno == errno.EADDRINUSE
                else f"cannot listen on {host}:{port}: {error.strerror}",
                "Stop what listens there, or give another --port.",
            ) from error
