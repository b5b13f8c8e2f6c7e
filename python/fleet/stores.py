"""An object store: credentials that are right, wrong and missing, and a server that is busy.

The store is moto, which checks signatures once it is told to. In front of it is a server that rejects some requests as S3
does when there are too many.
"""

from __future__ import annotations

import contextlib
import http.server
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engines import free_port, wait_for
from makeroom._impl import _index

BUCKET = "fleet"
#: Every third request is rejected.
REJECTED = 3
SETTINGS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_ALLOW_HTTP",
            "AWS_SESSION_TOKEN", "AWS_METADATA_ENDPOINT")


@contextlib.contextmanager
def server(folder: Path) -> Iterator[int]:
    port = free_port()
    with open(folder / "moto.log", "wb") as log:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_for("moto", lambda: answers(port))
        yield port
    finally:
        process.terminate()
        process.wait()


def answers(port: int) -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/moto-api/", timeout=5)
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def pass_on(handler: Any, port: int, headers: dict[str, str], body: bytes) -> None:
    """Repeats a request to another server and its response to the client."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{handler.path}", body or None, headers, method=handler.command)
    try:
        with urllib.request.urlopen(request, timeout=60) as passed:
            handler.reply(passed.status, dict(passed.headers), passed.read())
    except urllib.error.HTTPError as error:
        handler.reply(error.code, dict(error.headers), error.read())


class Busy(http.server.BaseHTTPRequestHandler):
    """Rejects some requests and passes the others on."""

    protocol_version = "HTTP/1.1"
    behind = 0
    seen = 0
    rejected = 0

    def answer(self) -> None:
        Busy.seen += 1
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if Busy.seen % REJECTED == 0:
            Busy.rejected += 1
            self.reply(503, {}, b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>")
            return
        # Without a type, urllib would declare the body to be a form.
        headers = {"Content-Type": "application/octet-stream", **dict(self.headers)}
        pass_on(self, self.behind, headers, body)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer

    def reply(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        length = headers.get("Content-Length", headers.get("content-length")) if self.command == "HEAD" else None
        for name, value in headers.items():
            if name.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server"):
                self.send_header(name, value)
        self.send_header("Content-Length", length or str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def use(port: int, key: str | None, secret: str | None) -> None:
    """Set the environment from which stores take their credentials."""
    for name in SETTINGS:
        os.environ.pop(name, None)
    os.environ.update(AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}", AWS_REGION="us-east-1", AWS_ALLOW_HTTP="true",
                      AWS_METADATA_ENDPOINT=f"http://127.0.0.1:{port}")
    if key and secret:
        os.environ.update(AWS_ACCESS_KEY_ID=key, AWS_SECRET_ACCESS_KEY=secret)


def error_of(source: str, index: str) -> str:
    """The error of an index that must not succeed."""
    try:
        objects, found = _index.new_objects(source, index)
        _index.conclude(objects, len(found), _index.index_all(found, index))
    except Exception as error:  # any store has its own
        return f"{type(error).__name__}: {error}"
    raise AssertionError("an index was made without the right credentials")


def check(folder: Path, source: Path) -> None:
    import boto3

    with server(folder) as port:
        client = {"endpoint_url": f"http://127.0.0.1:{port}", "region_name": "us-east-1",
                  "aws_access_key_id": "setup", "aws_secret_access_key": "setup"}
        iam, s3 = boto3.client("iam", **client), boto3.client("s3", **client)
        iam.create_user(UserName="fleet")
        policy = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}'
        iam.put_user_policy(UserName="fleet", PolicyName="all", PolicyDocument=policy)
        made = iam.create_access_key(UserName="fleet")["AccessKey"]
        key, secret = made["AccessKeyId"], made["SecretAccessKey"]
        s3.create_bucket(Bucket=BUCKET)
        wanted = {}
        for path in sorted(source.rglob("*.gz")):
            s3.put_object(Bucket=BUCKET, Key=f"recordings/{path.name}", Body=path.read_bytes())
            wanted[path.name] = path
        # From here on, every request needs a valid signature.
        reset = urllib.request.Request(f"http://127.0.0.1:{port}/moto-api/reset-auth", b"0", {"Content-Type": "text/plain"})
        urllib.request.urlopen(reset, timeout=10).close()
        place, index = f"s3://{BUCKET}/recordings", f"s3://{BUCKET}/index"

        for name, used in (("wrong", (key, "x" * 40)), ("missing", (None, None)), ("unknown", ("AKIAUNKNOWN", "y" * 40))):
            use(port, *used)
            text = error_of(place, index)
            assert secret not in text and "x" * 40 not in text, f"{name} credentials: the error contains a secret"

        behind = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Busy)
        Busy.behind = port
        threading.Thread(target=behind.serve_forever, daemon=True).start()
        use(behind.server_port, key, secret)
        objects, found = _index.new_objects(place, index)
        result = _index.conclude(objects, len(found), _index.index_all(found, index))
        assert result.written == len(wanted), result
        assert Busy.rejected > 3, f"only {Busy.rejected} requests were rejected"
        use(port, key, secret)
        again = _index.new_objects(place, index)
        assert again == (len(wanted), []), "an object that is indexed is not indexed again"
        # A local index of the stored objects, to compare the files with.
        local = folder / "of-store"
        _, found = _index.new_objects(place, str(local))
        list(_index.index_all(found, str(local)))
        store, prefix, _ = _index.open_store(f"{index}/objects/")
        for chunk in store.list(prefix):
            for entry in chunk:
                content = bytes(store.get(entry["path"]).bytes())
                wanted = (local / "objects" / entry["path"].rsplit("/", 1)[1]).read_bytes()
                assert content == wanted, (entry["path"], content[:80], wanted[:80])
        behind.shutdown()
        for name in SETTINGS:
            os.environ.pop(name, None)
