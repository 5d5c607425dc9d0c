"""Servers that tests and benchmarks of data start on loopback, and end: MinIO, Toxiproxy in front of it, and a server of
ranges that counts them (endless_server.py).

MinIO and Toxiproxy are those that scripts/fetch_minio.sh and scripts/fetch_toxiproxy.sh build, or those that MUSTER_MINIO
and MUSTER_TOXIPROXY name. Only Python's standard library is used.
"""
import ctypes
import datetime
import hashlib
import hmac
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
USER, PASSWORD, REGION, BUCKET = "tester", "test-password", "us-east-1", "bucket"
PR_SET_PDEATHSIG = 1


def program(variable, *place):
    """Its path, or None if it is not there."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    path = os.environ.get(variable) or os.path.join(cache, "muster", *place)
    return path if os.access(path, os.X_OK) else None


def minio():
    return program("MUSTER_MINIO", "minio", "20260212201848", "minio")


def toxiproxy():
    return program("MUSTER_TOXIPROXY", "toxiproxy", "2.12.0", "toxiproxy-server")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(command, env=None, **options):
    """A process that dies with this one, also if this one is killed."""
    def before():
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    return subprocess.Popen(command, stdin=subprocess.DEVNULL, env=env, preexec_fn=before, **options)


class Server:
    """Ended with its `with` block."""
    process = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def suspend(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)


class Minio(Server):
    """With one bucket and a directory of its own."""

    def __init__(self, folder):
        self.port = free_port()
        os.makedirs(os.path.join(folder, BUCKET))  # a bucket is a directory in MinIO's own
        with open(os.path.join(folder, "minio.log"), "w") as log:
            self.process = start([minio(), "server", "--quiet", "--address", f"127.0.0.1:{self.port}", folder],
                                 {"HOME": folder, "MINIO_ROOT_USER": USER, "MINIO_ROOT_PASSWORD": PASSWORD,
                                  "MINIO_BROWSER": "off", "MINIO_UPDATE": "off", "MINIO_PROMETHEUS_AUTH_TYPE": "public",
                                  "GOMAXPROCS": "2"},
                                 stdout=log, stderr=log)
        # Its own "ready" comes earlier than answers to signed requests.
        for _ in range(600):
            try:
                self.put("ready", b"")
                return
            except (OSError, http.client.HTTPException, RuntimeError):
                time.sleep(0.05)
        raise RuntimeError("MinIO did not start within 30 s")

    def environment(self, port=None):
        """For programs that read from it, or through another port."""
        return {"AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{port or self.port}", "AWS_REGION": REGION,
                "AWS_ACCESS_KEY_ID": USER, "AWS_SECRET_ACCESS_KEY": PASSWORD}

    def put(self, key, contents):
        """Signed as AWS documents it (SigV4); keys of letters, digits, dots, dashes and slashes."""
        now = datetime.datetime.now(datetime.timezone.utc)
        moment, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
        host, path = f"127.0.0.1:{self.port}", f"/{BUCKET}/{key}"
        digest = hashlib.sha256(contents).hexdigest()
        signed = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": moment}
        names = ";".join(signed)
        request = "\n".join(["PUT", path, "", *(f"{name}:{value}" for name, value in signed.items()), "", names, digest])
        scope = f"{day}/{REGION}/s3/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", moment, scope, hashlib.sha256(request.encode()).hexdigest()])
        sign = ("AWS4" + PASSWORD).encode()
        for part in (*scope.split("/"), text):
            sign = hmac.new(sign, part.encode(), hashlib.sha256).digest()
        headers = {**signed, "Authorization": f"AWS4-HMAC-SHA256 Credential={USER}/{scope}, SignedHeaders={names}, "
                                              f"Signature={sign.hex()}"}
        connection = http.client.HTTPConnection(host, timeout=30)
        try:
            connection.request("PUT", path, contents, headers)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise RuntimeError(f"MinIO: PUT {path}: {answer.status} {body[:300]}")

    def answers(self):
        """How many objects or ranges were asked for so far, and how many of these answers a client did not take to their end."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/minio/metrics/v3/api/requests", timeout=30) as answer:
            lines = [line for line in answer.read().decode().splitlines() if 'name="GetObject"' in line]

        def total(name):
            return int(sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"minio_api_requests_{name}")))

        return total("total"), total("canceled_total")

    def upload(self, folder, prefix):
        """All files below the folder. Its address, for a job."""
        for root, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(root, name)
                with open(path, "rb") as f:
                    self.put(f"{prefix}/{os.path.relpath(path, folder)}", f.read())
        return f"s3://{BUCKET}/{prefix}"


class Toxiproxy(Server):
    """One proxy, in front of a port of this machine."""

    def __init__(self, folder, upstream):
        self.api, self.port = free_port(), free_port()
        with open(os.path.join(folder, "toxiproxy.log"), "w") as log:
            self.process = start([toxiproxy(), "-host", "127.0.0.1", "-port", str(self.api), "-proxy-metrics"],
                                 stdout=log, stderr=log)
        for _ in range(200):
            try:
                self.ask("GET", "/version")
                break
            except OSError:
                time.sleep(0.05)
        self.ask("POST", "/proxies", name="store", listen=f"127.0.0.1:{self.port}", upstream=f"127.0.0.1:{upstream}",
                 enabled=True)

    def ask(self, method, path, **body):
        request = urllib.request.Request(f"http://127.0.0.1:{self.api}{path}", method=method,
                                         data=json.dumps(body).encode() if body else None,
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"Toxiproxy: {method} {path}: {error.code} {error.read()[:300]}") from error

    def add(self, kind, toxicity=1.0, stream="downstream", **attributes):
        """A toxic of this kind, for this share of the connections: drawn for those that there are, and for each new one."""
        self.ask("POST", "/proxies/store/toxics", name=kind, type=kind, stream=stream, toxicity=toxicity, attributes=attributes)

    def remove(self, kind):
        self.ask("DELETE", f"/proxies/store/toxics/{kind}")

    def clear(self):
        """No toxics, and connections are accepted."""
        self.ask("POST", "/reset")

    def accept(self, accepts):
        """False: all connections are closed, and new ones refused."""
        self.ask("POST", "/proxies/store", enabled=accepts)

    def sent_bytes(self):
        """To clients, so far."""
        total = 0
        for line in self.ask("GET", "/metrics").splitlines():
            if line.startswith("toxiproxy_proxy_sent_bytes_total") and 'direction="downstream"' in line:
                total += float(line.rsplit(" ", 1)[1])
        return total


class Weather(threading.Thread):
    """Toxics for a share of the connections, drawn again every `period` seconds: a connection that was spared is kept open and
    used again, so that without it there would soon be only such ones."""

    def __init__(self, proxy, toxics, toxicity, period=0.5):
        super().__init__(daemon=True)
        self.proxy, self.toxics, self.toxicity, self.period = proxy, toxics, toxicity, period
        self.ended = threading.Event()

    def __enter__(self):
        for kind, attributes in self.toxics.items():
            self.proxy.add(kind, self.toxicity, **attributes)
        self.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.join()
        self.proxy.clear()

    def run(self):
        turn = 0
        while not self.ended.wait(self.period):
            turn += 1
            for kind, attributes in self.toxics.items():
                # A connection that stalls does so until its toxic goes: that is to take longer than anybody waits for.
                if kind == "timeout" and turn % 4:
                    continue
                self.proxy.remove(kind)
                self.proxy.add(kind, self.toxicity, **attributes)


class EndlessServer(Server):
    """endless_server.py: ranges of a file that is repeated up to any size, counted."""

    def __init__(self, path, size=None):
        self.process = start([sys.executable, "-B", os.path.join(HERE, "endless_server.py"), path], stdout=subprocess.PIPE,
                             text=True)
        self.port = int(self.process.stdout.readline())
        if size is not None:
            self.resize(size)

    def url(self, name):
        return f"http://127.0.0.1:{self.port}/{name}"

    def ask(self, path):
        request = urllib.request.Request(self.url(path), method="POST", data=b"")
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read())

    def resize(self, size):
        self.ask(f"size/{size}")

    def counts(self):
        """{"requests": of ranges, "bytes": sent for them}, since the last call."""
        return self.ask("counts")
