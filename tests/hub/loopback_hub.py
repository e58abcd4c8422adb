"""A hub on this machine: as much of huggingface.co as up- and downloads need, and the faults that a real one has."""

import base64
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from urllib.parse import unquote, urlsplit

NAME = "owner/some-bert"
COMMIT = "c" * 40
TOKEN = "hf_loopback"


class LoopbackHub:
    """One repository.

    Attributes
    ----------
    files : dict of bytes
        What its main branch holds, by name. Those that end in .safetensors or .bin are in LFS, as on the hub.
    commits : dict of dict of bytes
        The same of each commit, by its hash; the last one is that of the main branch.
    exists : bool
        Whether somebody has made it yet.
    private : bool
    refuses_metadata : bool
        Whether the metadata of a model card are found to be invalid.
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
        self.commits = {COMMIT: files}
        self.exists, self.private, self.refuses_metadata = True, False, False
        self.large: dict[str, bytes] = {}  # what was put into LFS, by its checksum
        self.altered: set[str] = set()
        self.cut: dict[str, int] = {}
        self.stalled: str | None = None
        self.stopped, self.go_on = Event(), Event()
        self.refused: tuple[int, str] | None = None
        self.requests: list[tuple[str, str, str | None]] = []
        self.address = ""

    @property
    def head(self) -> str:
        """The commit of the main branch."""
        return list(self.commits)[-1]

    @property
    def files(self) -> dict[str, bytes]:
        return self.commits[self.head]

    @files.setter
    def files(self, files: dict[str, bytes]) -> None:
        self.commits[self.head] = files

    def files_of(self, path: str) -> dict[str, bytes]:
        """What the commit holds that a path names; of any other revision, what the main branch does."""
        return next((files for commit, files in self.commits.items() if f"/{commit}" in path), self.files)

    def commit(self, lines: list[dict]) -> str:
        """Make a commit of what was sent, a line a file."""
        files = dict(self.files)
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.large[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        commit = hashlib.sha1(repr((len(self.commits), sorted(files.items()))).encode()).hexdigest()
        self.commits[commit] = files
        return commit

    def fetched(self) -> list[str]:
        """The files whose content was asked for, each as often as that was."""
        return [path.rpartition("/")[2] for method, path, _ in self.requests if method == "GET" and "/resolve/" in path]

    def ids(self, name: str, content: bytes) -> dict:
        """What the hub says of a file."""
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
                files = hub.files_of(path)
                commit = next(commit for commit in hub.commits if hub.commits[commit] is files)
                if hub.refused:
                    self.answer(hub.refused[0], b"{}", {"X-Error-Code": hub.refused[1], "X-Error-Message": "no"})
                elif not hub.exists:
                    self.answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})
                elif path.startswith(f"/api/models/{NAME}/tree/"):
                    self.answer(200, json.dumps([hub.ids(*file) for file in files.items()]).encode())
                elif path.startswith(f"/api/models/{NAME}"):
                    facts = {"id": NAME, "sha": commit, "private": hub.private}
                    facts["siblings"] = [hub.ids(*file) for file in files.items()]
                    self.answer(200, json.dumps(facts).encode())
                elif path.startswith(f"/{NAME}/resolve/") and (name := path.rpartition("/")[2]) in files:
                    self.answer_file(name, files[name], commit)
                else:
                    self.answer(404, b"{}", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})

            def do_PUT(self):
                hub.requests.append((self.command, self.path, None))
                hub.large[self.path.rpartition("/")[2]] = self.rfile.read(int(self.headers["Content-Length"]))
                self.answer(200, b"")

            def do_POST(self):
                path = unquote(urlsplit(self.path).path)
                hub.requests.append((self.command, self.path, None))
                sent = self.rfile.read(int(self.headers["Content-Length"])).decode()
                if hub.refused:
                    self.answer(hub.refused[0], b"{}", {"X-Error-Code": hub.refused[1], "X-Error-Message": "no"})
                elif path == "/api/validate-yaml":
                    errors = [{"message": '"license" must be one of many'}] if hub.refuses_metadata else []
                    self.answer(400 if errors else 200, json.dumps({"errors": errors, "warnings": []}).encode())
                elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
                    self.answer(401, b"{}", {"X-Error-Message": "Invalid username or password."})
                elif path == "/api/repos/create":
                    wanted = json.loads(sent)
                    hub.exists, hub.private = True, bool(wanted.get("private") or wanted.get("visibility") == "private")
                    self.answer(200, json.dumps({"url": f"{hub.address}/{NAME}", "id": NAME}).encode())
                elif path.startswith(f"/api/models/{NAME}/preupload/"):
                    names = [file["path"] for file in json.loads(sent)["files"]]
                    modes = [
                        {
                            "path": name,
                            "shouldIgnore": False,
                            "uploadMode": "lfs" if "safetensors" in name else "regular",
                        }
                        for name in names
                    ]
                    self.answer(200, json.dumps({"files": modes}).encode())
                elif path == f"/{NAME}.git/info/lfs/objects/batch":
                    objects = [
                        {**wanted, "actions": {"upload": {"href": f"{hub.address}/lfs/{wanted['oid']}"}}}
                        for wanted in json.loads(sent)["objects"]
                    ]
                    self.answer(200, json.dumps({"objects": objects}).encode())
                elif path.startswith(f"/api/models/{NAME}/commit/"):
                    lines = [json.loads(line) for line in sent.splitlines()]
                    if lines[0]["value"].get("parentCommit", hub.head) != hub.head:
                        self.answer(412, b"{}", {"X-Error-Message": "A commit has happened since."})
                    else:
                        commit = hub.commit(lines[1:])
                        url = f"{hub.address}/{NAME}/commit/{commit}"
                        self.answer(200, json.dumps({"commitUrl": url, "commitOid": commit}).encode())
                else:
                    self.answer(404, b"{}", {"X-Error-Code": "EntryNotFound"})

            def answer_file(self, name, content, commit):
                ids = hub.ids(name, content)
                if name in hub.altered:
                    content = bytes([content[0] ^ 1]) + content[1:]
                etag = ids["lfs"]["sha256"] if "lfs" in ids else ids["oid"]
                headers = {"ETag": f'"{etag}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
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
                if self.command != "HEAD":
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
