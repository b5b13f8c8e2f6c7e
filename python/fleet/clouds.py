"""The stores of each cloud: `s3://` on s3s-fs and `az://` on Azurite, which both check signatures, and `gs://` on moto, whose
buckets have the same interface as Google's, behind a server that checks the token of each request.

The command and the Python module must write the same files, and wrong credentials must fail and stay secret.
"""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import stores
from engines import free_port, wait_for
from makeroom._impl import _index

ROOT = Path(__file__).resolve().parents[2]
ACCOUNT = "fleet"
#: The owner of the buckets of moto, which does not check signatures unless it is told to.
OWNER = "AWS4-HMAC-SHA256 Credential=setup/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
EMAIL = "fleet@example.iam.gserviceaccount.com"


def run(source: str, index: str) -> subprocess.CompletedProcess[str]:
    program = Path(os.environ.get("MAKEROOM_COMMAND", ROOT / "target" / "debug" / "makeroom"))
    return subprocess.run([program, "index", source, "-o", index], capture_output=True, text=True)


@contextlib.contextmanager
def settings(**variables: str) -> Iterator[None]:
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            os.environ.pop(name, None)


def compare(base: str, count: int, folder: Path) -> None:
    """Index `base`/recordings with the command and with the module, and compare the files."""
    source, index = f"{base}/recordings", f"{base}/index"
    ended = run(source, index)
    assert ended.returncode == 0, ended.stderr
    again = run(source, index)
    assert "Indexed 0 objects" in again.stdout, again.stdout
    assert _index.new_objects(source, index) == (count, []), "the module does not see what the command has indexed"
    _, found = _index.new_objects(source, str(folder))
    list(_index.index_all(found, str(folder)))
    store, prefix, _ = _index.open_store(f"{index}/objects/")
    entries = [entry["path"] for chunk in store.list(prefix) for entry in chunk]
    assert len(entries) == count, entries
    for path in entries:
        content = bytes(store.get(path).bytes())
        assert content == (folder / "objects" / path.rsplit("/", 1)[1]).read_bytes(), path


def fails(source: str, index: str, secret: str, variable: str) -> None:
    """The command must fail, name the variable to check and not the secret."""
    ended = run(source, index)
    assert ended.returncode == 1 and variable in ended.stderr, ended.stderr
    assert secret not in ended.stderr + ended.stdout, "the error contains a secret"


@contextlib.contextmanager
def server(port: int, folder: Path, command: list[str], **variables: str) -> Iterator[None]:
    with open(folder / f"server-{port}.log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **variables})
    try:
        wait_for(command[0], lambda: stores.answers(port))
        yield
    finally:
        process.terminate()
        process.wait()


def amazon(folder: Path, recordings: list[Path]) -> None:
    import boto3

    root, port, key, secret, wrong = folder / "s3s", free_port(), "AKIAFLEET", "s" * 40, "w" * 40
    root.mkdir()
    command = [os.environ["MAKEROOM_S3S"], "--access-key", key, "--secret-key", secret, "--host", "127.0.0.1", "--port",
               str(port), str(root)]
    with server(port, folder, command):
        endpoint = f"http://127.0.0.1:{port}"
        s3 = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id=key,
                          aws_secret_access_key=secret)
        s3.create_bucket(Bucket="fleet")
        for path in recordings:
            s3.put_object(Bucket="fleet", Key=f"recordings/{path.name}", Body=path.read_bytes())
        with settings(AWS_ACCESS_KEY_ID=key, AWS_SECRET_ACCESS_KEY=secret, AWS_ENDPOINT_URL=endpoint, AWS_REGION="us-east-1",
                      AWS_ALLOW_HTTP="true"):
            compare("s3://fleet", len(recordings), folder / "of-amazon")
            os.environ["AWS_SECRET_ACCESS_KEY"] = wrong
            fails("s3://fleet/recordings", "s3://fleet/other", wrong, "AWS_ACCESS_KEY_ID")


def azure(folder: Path, recordings: list[Path]) -> None:
    from azure.storage.blob import BlobServiceClient

    key, wrong = (base64.b64encode(letter * 64).decode() for letter in (b"k", b"w"))
    port = free_port()
    command = [os.environ["MAKEROOM_AZURITE"], "--blobPort", str(port), "--inMemoryPersistence", "--silent",
               "--skipApiVersionCheck", "--disableTelemetry"]
    with server(port, folder, command, AZURITE_ACCOUNTS=f"{ACCOUNT}:{key}"):
        endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
        client = BlobServiceClient(endpoint, credential={"account_name": ACCOUNT, "account_key": key})
        container = client.create_container("fleet")
        for path in recordings:
            container.upload_blob(f"recordings/{path.name}", path.read_bytes())
        with settings(AZURE_STORAGE_ACCOUNT_NAME=ACCOUNT, AZURE_STORAGE_ACCOUNT_KEY=key, AZURE_STORAGE_ENDPOINT=endpoint,
                      AZURE_ALLOW_HTTP="true"):
            compare("az://fleet", len(recordings), folder / "of-azure")
            os.environ["AZURE_STORAGE_ACCOUNT_KEY"] = wrong
            fails("az://fleet/recordings", "az://fleet/other", wrong, "AZURE_STORAGE_ACCOUNT_KEY")


class Google(http.server.BaseHTTPRequestHandler):
    """Checks the signature of the token of each request, and passes the request on as the owner's."""

    protocol_version = "HTTP/1.1"
    behind = 0
    is_valid: Callable[[str], bool]

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        scheme, _, token = (self.headers.get("Authorization") or "").partition(" ")
        if scheme != "Bearer" or not type(self).is_valid(token):
            self.reply(401, {}, b"<Error><Code>AuthenticationRequired</Code></Error>")
            return
        kept = {name: value for name, value in self.headers.items() if name.lower() != "authorization"}
        headers = {"Content-Type": "application/octet-stream", **kept, "Authorization": OWNER}
        stores.pass_on(self, self.behind, headers, body)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer
    reply = stores.Busy.reply
    log_message = stores.Busy.log_message


def google(folder: Path, recordings: list[Path]) -> None:
    import boto3
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import padding, rsa

    keys = [rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2)]

    def is_valid(token: str) -> bool:
        signed, _, signature = token.rpartition(".")
        try:
            given = base64.urlsafe_b64decode(signature + "=" * (-len(signature) % 4))
            keys[0].public_key().verify(given, signed.encode(), padding.PKCS1v15(), hashes.SHA256())
            claims = json.loads(base64.urlsafe_b64decode(signed.split(".")[1] + "=="))
        except (InvalidSignature, ValueError, IndexError):
            return False
        return claims["iss"] == EMAIL

    with stores.server(folder) as port:
        s3 = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1", aws_access_key_id="setup",
                          aws_secret_access_key="setup")
        s3.create_bucket(Bucket="fleet")
        for path in recordings:
            s3.put_object(Bucket="fleet", Key=f"recordings/{path.name}", Body=path.read_bytes())
        Google.behind, Google.is_valid = port, staticmethod(is_valid)
        before = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Google)
        threading.Thread(target=before.serve_forever, daemon=True).start()
        accounts = []
        for number, key in enumerate(keys):
            text = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                     serialization.NoEncryption()).decode()
            account = {"type": "service_account", "client_email": EMAIL, "private_key_id": str(number), "private_key": text,
                       "gcs_base_url": f"http://127.0.0.1:{before.server_port}"}
            accounts.append(folder / f"account{number}.json")
            accounts[-1].write_text(json.dumps(account))
        with settings(GOOGLE_SERVICE_ACCOUNT=str(accounts[0])):
            compare("gs://fleet", len(recordings), folder / "of-google")
            os.environ["GOOGLE_SERVICE_ACCOUNT"] = str(accounts[1])
            secret = accounts[1].read_text().split("\\n")[3]
            fails("gs://fleet/recordings", "gs://fleet/other", secret, "GOOGLE_SERVICE_ACCOUNT")
        before.shutdown()


def check(folder: Path, source: Path) -> None:
    recordings = sorted(source.rglob("*.gz"))
    amazon(folder, recordings)
    azure(folder, recordings)
    google(folder, recordings)
