"""A hub on this machine: as much of huggingface.co as a download needs, and the faults that a real one has at times."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from urllib.parse import unquote, urlsplit

NAME = "owner/some-bert"
COMMIT = "c" * 40


class LoopbackHub:
    """One repository.

    Attributes
    ----------
    files : dict of bytes
        What it holds, by name. Those that end in .safetensors or .bin are in LFS, as on the hub.
    altered : set of str
        Files of which a byte arrives changed.
    cut : dict of int
        Files whose connection breaks after so many bytes, once.
    stalled : str, optional
        A file whose content stops half way, with the connection open.
    refused : tuple of (int, str), optional
        Status and X-Error-Code with which everything is refused.
    requests : list of (str, str, str or None)
        Method, path (with the address, where it came as to a proxy) and range of all that was asked for.
    """

    def __init__(self, files: dict[str, bytes]):
        self.files = files
        self.altered: set[str] = set()
        self.cut: dict[str, int] = {}
        self.stalled: str | None = None
        self.stopped, self.go_on = Event(), Event()
        self.refused: tuple[int, str] | None = None
        self.requests: list[tuple[str, str, str | None]] = []
        self.address = ""

    def fetched(self) -> list[str]:
        """The files whose content was asked for, each as often as that was."""
        return [path.rpartition("/")[2] for method, path, _ in self.requests if method == "GET" and "/resolve/" in path]

    def ids(self, name: str) -> dict:
        """What the hub says of a file."""
        content = self.files[name]
        blob = hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()
        entry = {"size": len(content), "oid": blob, "blobId": blob, "path": name, "rfilename": name, "type": "file"}
        if name.endswith((".safetensors", ".bin")):
            sum_ = hashlib.sha256(content).hexdigest()
            entry["lfs"] = {"sha256": sum_, "oid": sum_, "size": len(content), "pointerSize": 130}
        return entry

    @contextmanager
    def serving(self) -> Iterator["LoopbackHub"]:
        """Serve on a free port, whose address is ``address``."""
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self):
                self.do_GET()

            def do_GET(self):
                path = unquote(urlsplit(self.path).path)
                hub.requests.append((self.command, self.path, self.headers.get("Range")))
                if hub.refused:
                    self.answer(hub.refused[0], b"{}", {"X-Error-Code": hub.refused[1], "X-Error-Message": "no"})
                elif path.startswith(f"/api/models/{NAME}/tree/"):
                    self.answer(200, json.dumps([hub.ids(name) for name in hub.files]).encode())
                elif path.startswith(f"/api/models/{NAME}"):
                    siblings = [hub.ids(name) for name in hub.files]
                    self.answer(200, json.dumps({"id": NAME, "sha": COMMIT, "siblings": siblings}).encode())
                elif path.startswith(f"/{NAME}/resolve/") and (name := path.rpartition("/")[2]) in hub.files:
                    self.answer_file(name)
                else:
                    self.answer(404, b"{}", {"X-Error-Code": "EntryNotFound"})

            def answer_file(self, name):
                content, ids = hub.files[name], hub.ids(name)
                if name in hub.altered:
                    content = bytes([content[0] ^ 1]) + content[1:]
                etag = ids["lfs"]["sha256"] if "lfs" in ids else ids["oid"]
                headers = {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
                if "lfs" in ids:
                    headers |= {"X-Linked-Etag": f'"{etag}"', "X-Linked-Size": str(len(content))}
                start = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").split("-")[0])
                if start:
                    headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
                cut = hub.cut.pop(name, None) if self.command == "GET" else None
                stall = len(content) // 2 if name == hub.stalled and self.command == "GET" else None
                self.answer(206 if start else 200, content[start:], headers, cut or stall)

            def answer(self, status, body, headers=None, cut=None):
                self.send_response(status)
                for key, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
                    self.send_header(key, value)
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body[:cut])
                    self.close_connection = cut is not None
                    if cut is not None and hub.stalled:
                        hub.stopped.set()
                        hub.go_on.wait(30)

            def log_message(self, *_):
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            self.address = f"http://127.0.0.1:{server.server_port}"
            thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
            thread.start()
            try:
                yield self
            finally:
                self.go_on.set()
                server.shutdown()
                thread.join()
