#!/usr/bin/env python3
"""A web server for tests: prints its port, serves one object under many names, each with a behaviour.

/good        ranges, ETag, If-Match            /no-ranges   200 with everything, whatever is asked
/no-etag     ranges, Last-Modified only        /weak        ranges and a weak ETag
/bare        ranges, no version at all         /empty       an object without bytes
/ignores     ranges, but not If-Match          /gzip        compressed if the client accepts it
/wrong       206 of other bytes than asked     /short       closes the connection in the middle
/long        206 with more bytes than asked    /busy        503 twice, then like /good
/forbidden   403                               /slow        sends a byte, then nothing
/redirect    to /good                          /loop        redirects to itself
/garbled     an answer that is not HTTP        /elsewhere   redirects to ftp://
/trickle     100 bytes a second for 6 s, then the rest
/bucket/expiring  of S3: refuses OLD-KEY, and says why unless it is asked with HEAD
/bucket/CODE      of S3: refuses OLD-KEY with 403 and this code, requests that are not signed with AccessDenied
/webhdfs/v1  a name node with the tree HDFS below; OPEN redirects to /datanode; LISTSTATUS of what is in /busy
             answers 503 to the first question for each directory
/paged/      a bucket of S3 with six keys on three pages, each of which answers 503 when it is first asked for
/overlapping/  the same with four keys: a page begins with the last key of the one before
/plain       200 with everything, no version   /downgrade   to /good by http, also if it is asked by https
Anything else is a 404. POST /change gives the object other contents, POST /shorten fewer bytes; POST /count answers with
the number of connections so far, POST /asked with how often each page of /paged/, and each directory in /busy, was asked
for, POST /tls with the port of the same server with TLS, which it starts, and a line below with its certificate; without
the command openssl, which makes that, with nothing.
"""

import gzip
import hashlib
import http.server
import json
import pathlib
import re
import shutil
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.parse

CONTENT = bytes((i * 7 + (i >> 8)) % 256 for i in range(100000))
HDFS = {"/busy/x/1": b"1", "/busy/y/2": b"2", "/d/a.txt": b"alpha", "/d/b c=1.txt": b"beta", "/d/sub/c.txt": b"0123456789", "/d/.hidden": b"x"}


class State:
    content = CONTENT
    time = "Mon, 01 Jan 2024 00:00:00 GMT"
    hdfs_time = 1700000000000
    busy = 0
    asked = {}
    connections = 0


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self):
        State.connections += 1
        super().setup()

    def log_message(self, *args):
        pass

    def answer(self, status, body=b"", headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        if self.path == "/change":
            State.content = State.content[:-1] + b"!"
            State.time = "Tue, 02 Jan 2024 00:00:00 GMT"
            State.hdfs_time += 1000
            self.answer(200)
        elif self.path == "/shorten":
            State.content = State.content[:-10]
            self.answer(200)
        elif self.path == "/tls":
            self.answer(200, serve_tls().encode())
        elif self.path == "/count":
            self.answer(200, str(State.connections).encode())
        elif self.path == "/asked":
            self.answer(200, " ".join(f"{name}:{times}" for name, times in sorted(State.asked.items())).encode())
        else:
            self.answer(404)

    def do_HEAD(self):
        known = self.path == "/bucket/expiring"
        status = 404 if not known else 400 if "OLD-KEY" in self.headers.get("Authorization", "") else 200
        self.send_response(status)
        self.send_header("Content-Length", str(len(State.content)))
        self.send_header("ETag", '"%s"' % hashlib.md5(State.content).hexdigest())
        self.end_headers()

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        if url.path.rstrip("/").endswith("/silent"):
            time.sleep(30)
            return self.answer(503)
        if url.path.startswith("/webhdfs/v1/"):
            return self.name_node(urllib.parse.unquote(url.path[11:]), dict(urllib.parse.parse_qsl(url.query)))
        if url.path.startswith("/datanode/"):
            query = dict(urllib.parse.parse_qsl(url.query))
            start = int(query["offset"])
            return self.answer(200, HDFS[urllib.parse.unquote(url.path[9:])][start:start + int(query["length"])])
        name = url.path
        if name in ("/paged/", "/overlapping/"):  # of S3
            return self.page(name, int(dict(urllib.parse.parse_qsl(url.query)).get("continuation-token", "0")))
        if name == "/bucket/expiring":  # of S3
            if "OLD-KEY" in self.headers.get("Authorization", ""):
                return self.answer(400, b"<Error><Code>ExpiredToken</Code><Message>It has expired.</Message></Error>")
            return self.content("/good")
        if name.startswith("/bucket/"):  # of S3
            signed = self.headers.get("Authorization", "")
            if not signed or "OLD-KEY" in signed:
                code = name[8:] if signed else "AccessDenied"
                return self.answer(403, f"<Error><Code>{code}</Code><Message>No.</Message></Error>".encode())
            return self.content("/good")
        if name in ("/redirect", "/redirect-garbled"):
            return self.answer(302, b"elsewhere", [("Location", "/good" if name == "/redirect" else "/garbled")])
        if name == "/downgrade":
            return self.answer(302, b"", [("Location", f"http://127.0.0.1:{server.server_address[1]}/good")])
        if name == "/loop":
            return self.answer(302, b"", [("Location", "/loop")])
        if name == "/elsewhere":
            return self.answer(302, b"", [("Location", "ftp://127.0.0.1/good")])
        if name == "/garbled":
            self.wfile.write(bytes(range(256)))
            self.close_connection = True
            return None
        if name == "/forbidden":
            return self.answer(403, b"no")
        if name == "/busy":
            State.busy += 1
            if State.busy <= 2:
                return self.answer(503, b"later")
        if name == "/empty":
            return self.answer(416, b"", [("Content-Range", "bytes */0"), ("ETag", '"e"')])
        known = ("/good", "/no-ranges", "/no-etag", "/weak", "/bare", "/ignores", "/gzip", "/wrong", "/short", "/long",
                 "/busy", "/slow", "/trickle", "/plain")
        return self.content(name) if name in known else self.answer(404)

    def is_first(self, name):
        State.asked[name] = State.asked.get(name, 0) + 1
        return State.asked[name] == 1

    def page(self, name, number):
        first = 2 * number if name == "/paged/" else number
        if self.is_first(str(number)):
            return self.answer(503, b"<Error><Code>SlowDown</Code><Message>Please reduce your rate.</Message></Error>")
        keys = "".join(f"<Contents><Key>{first + i}.tar</Key><ETag>e</ETag><Size>1</Size></Contents>" for i in (0, 1))
        more = f"<NextContinuationToken>{number + 1}</NextContinuationToken>" if number < 2 else ""
        body = f"<ListBucketResult><IsTruncated>{'true' if more else 'false'}</IsTruncated>{more}{keys}</ListBucketResult>"
        return self.answer(200, body.encode())

    def content(self, name):
        content = State.content
        etag = '"%s"' % hashlib.md5(content).hexdigest()
        headers = []
        if name == "/weak":
            headers.append(("ETag", "W/" + etag))
        elif name not in ("/no-etag", "/bare", "/plain"):
            headers.append(("ETag", etag))
        if name not in ("/bare", "/plain"):
            headers.append(("Last-Modified", State.time))
        wanted = self.headers.get("If-Match")
        if wanted and wanted != etag and name != "/ignores":
            return self.answer(412)
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if name in ("/no-ranges", "/plain") or not asked:
            return self.answer(200, content, headers)
        if name == "/gzip" and "gzip" in self.headers.get("Accept-Encoding", ""):
            return self.answer(200, gzip.compress(content), headers + [("Content-Encoding", "gzip")])
        first, last = int(asked[1]), int(asked[2])
        if name == "/wrong":
            first, last = first + 1, last + 1
        body = content[first:last + 1]
        headers.append(("Content-Range", f"bytes {first}-{last}/{len(content)}"))
        if name == "/long" and len(body) > 1:
            body += b"more"
        if name == "/trickle" and len(body) > 600:
            self.send_response(206)
            for header in headers + [("Content-Length", str(len(body)))]:
                self.send_header(*header)
            self.end_headers()
            for start in range(0, 600, 10):
                self.wfile.write(body[start:start + 10])
                self.wfile.flush()
                time.sleep(0.1)
            self.wfile.write(body[600:])
            return None
        if name in ("/short", "/slow") and len(body) > 1:
            self.send_response(206)
            for header in headers + [("Content-Length", str(len(body)))]:
                self.send_header(*header)
            self.end_headers()
            self.wfile.write(body[:1])
            self.wfile.flush()
            if name == "/slow":
                time.sleep(30)
            self.close_connection = True
            return None
        return self.answer(206, body, headers)

    def name_node(self, path, query):
        path = path.rstrip("/") or "/"
        operation = query["op"]

        def status(suffix, contents):
            return {"pathSuffix": suffix, "type": "FILE" if contents is not None else "DIRECTORY",
                    "length": len(contents or b""), "modificationTime": State.hdfs_time, "fileId": 1}

        def refuse(code, exception):
            body = {"RemoteException": {"exception": exception, "javaClassName": "x", "message": "at " + path + "\nmore"}}
            return self.answer(code, json.dumps(body).encode(), [("Content-Type", "application/json")])

        if path == "/standby":
            return refuse(403, "StandbyException")
        if path == "/d/away" and operation == "OPEN":  # as HDFS does when the data node of a block is dead
            return refuse(403, "IOException")
        if path == "/private":
            return refuse(403, "AccessControlException")
        if path == "/d/away":
            return self.answer(200, json.dumps({"FileStatus": status("", b"away")}).encode())
        below = {name[len(path.rstrip("/")) + 1:] for name in HDFS if name.startswith(path.rstrip("/") + "/")}
        if path not in HDFS and not below:
            return refuse(404, "FileNotFoundException")
        if operation == "GETFILESTATUS":
            return self.answer(200, json.dumps({"FileStatus": status("", HDFS.get(path))}).encode())
        if operation == "LISTSTATUS":
            if path.startswith("/busy") and self.is_first(path):
                return self.answer(503, b"later")
            names = sorted({name.split("/")[0] for name in below})
            found = [status(name, HDFS.get(path.rstrip("/") + "/" + name)) for name in names]
            if path in HDFS:
                found = [status("", HDFS[path])]
            return self.answer(200, json.dumps({"FileStatuses": {"FileStatus": found}}).encode())
        if operation == "OPEN":
            where = f"/datanode{urllib.parse.quote(path)}?offset={query['offset']}&length={query['length']}"
            return self.answer(307, b"", [("Location", where)])
        return refuse(400, "UnsupportedOperationException")


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass  # a client that stops in the middle is what some tests are about


def serve_tls():
    openssl = shutil.which("openssl")
    if not openssl:
        return ""
    with tempfile.TemporaryDirectory() as folder:
        key, certificate = pathlib.Path(folder, "key.pem"), pathlib.Path(folder, "certificate.pem")
        subprocess.run([openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                        "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
                       check=True, stderr=subprocess.DEVNULL)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        text = certificate.read_text()
    secure = Server(("127.0.0.1", 0), Handler)
    secure.socket = context.wrap_socket(secure.socket, server_side=True)
    threading.Thread(target=secure.serve_forever, daemon=True).start()
    return f"{secure.server_address[1]}\n{text}"


server = Server(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
