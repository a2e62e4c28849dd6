"""A mail server on loopback that keeps what it is given: the part of SMTP that clients use."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage


@dataclass
class SmtpSink:
    """`refusals` says how many mails are refused with 451 before one is taken."""

    port: int = 0
    refusals: int = 0
    mails: list[tuple[list[str], EmailMessage]] = field(default_factory=list)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def say(line: str) -> None:
            writer.write(line.encode() + b"\r\n")
            await writer.drain()

        await say("220 sink ready")
        to: list[str] = []
        while line := (await reader.readline()).decode().strip():
            verb = line.split(" ", 1)[0].upper()
            if verb == "RCPT":
                to.append(line.partition(":")[2].strip(" <>"))
            if verb == "DATA":
                await say("354 go on")
                body = bytearray()
                while (got := await reader.readline()) != b".\r\n":
                    body += got[1:] if got.startswith(b"..") else got
                if self.refusals:
                    self.refusals -= 1
                    await say("451 try again later")
                    continue
                mail = message_from_bytes(bytes(body), policy=policy.default)
                assert isinstance(mail, EmailMessage)
                self.mails.append((to, mail))
                to = []
            if verb == "QUIT":
                await say("221 bye")
                break
            await say("250 ok")
        writer.close()


@contextmanager
def smtp_sink(*, refusals: int = 0) -> Iterator[SmtpSink]:
    """Run a sink on a free loopback port in a thread of its own."""
    sink = SmtpSink(refusals=refusals)
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(sink._serve, "127.0.0.1", 0, limit=2**24))
    sink.port = server.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield sink
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
