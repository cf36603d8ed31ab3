"""A proxy as institutions have one: the only way out, by CONNECT."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from tests.institutions import Wire


class Proxy(Wire):
    """Connects to one server under a name that only the proxy knows, and to nothing else."""

    def __init__(self, name: str, target: int) -> None:
        self.name = name
        self.asked: list[str] = []
        super().__init__(target)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        with suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                if not (data := near.recv(4096)):
                    return near.close()
                head += data
            words = head.split(b"\r\n")[0].decode().split()
            self.asked.append(" ".join(words[:2]))
            if words[:2] != ["CONNECT", f"{self.name}:{self.target}"]:
                near.sendall(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")
                return near.close()
            far = socket.create_connection(("127.0.0.1", self.target))
            near.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=(one, other), daemon=True).start()
        return None
