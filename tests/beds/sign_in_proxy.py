"""A reverse proxy on loopback that signs everyone in as one person, by a header."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def _with_person(head: bytes, person: str) -> bytes:
    """Return the head of a request with the person, and without one that the client claims."""
    first, *lines = head.split(b"\r\n")
    upgrade = any(line.lower().startswith(b"upgrade:") for line in lines)
    dropped = (b"x-forwarded-user:",) if upgrade else (b"x-forwarded-user:", b"connection:")
    kept = [line for line in lines if not line.lower().startswith(dropped)]
    # One request a connection, so that each gets the header.
    ours = [b"X-Forwarded-User: " + person.encode(), *([] if upgrade else [b"Connection: close"])]
    return b"\r\n".join([first, *ours, *kept])


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    for entry in (source, sink):
        with suppress(OSError):
            entry.shutdown(socket.SHUT_RDWR)


def _serve(client: socket.socket, port: int, person: str) -> None:
    with client, socket.create_connection(("127.0.0.1", port)) as server:
        head = b""
        while b"\r\n\r\n" not in head:
            data = client.recv(65536)
            if not data:
                return
            head += data
        top, _, rest = head.partition(b"\r\n\r\n")
        server.sendall(_with_person(top, person) + b"\r\n\r\n" + rest)
        back = threading.Thread(target=_pump, args=(server, client))
        back.start()
        _pump(client, server)
        back.join()


@contextmanager
def running_sign_in_proxy(port: int, person: str) -> Iterator[str]:
    """Forward to a loopback port until the block ends; give the address of the proxy."""
    threads: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    client, _address = listener.accept()
                    one = threading.Thread(target=_serve, args=(client, port, person))
                    threads.append(one)
                    one.start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        accepting.join()
    for thread in threads:
        thread.join(timeout=10)
