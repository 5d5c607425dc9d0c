#!/usr/bin/env python3
"""A web server for tests and benchmarks: prints its port, and answers ranges of one object, whatever its name is. The object is
the contents of FILE, repeated up to any size, so that data of any size needs no disk:

    endless_server.py FILE

POST /size/N     the object has N bytes from now on (at first: those of FILE)
POST /counts     how many ranges were asked for, and bytes of them sent, since the last time: {"requests": 3, "bytes": 12288}

A thread for each connection; bytes go from the mapped file to the socket without a copy in Python.
"""
import http.server
import json
import mmap
import re
import sys
import threading


class State:
    content = b""
    size = 0
    requests = 0
    bytes = 0
    lock = threading.Lock()


def pieces(first, last):
    """Bytes first to last of the object."""
    content, period = State.content, len(State.content)
    while first <= last:
        at = first % period
        end = min(period, at + last + 1 - first)
        yield content[at:end]
        first += end - at


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args):
        pass

    def answer(self, status, headers, parts=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        for part in parts:
            self.wfile.write(part)

    def do_POST(self):
        with State.lock:
            if self.path.startswith("/size/"):
                State.size = int(self.path[len("/size/"):])
            body = json.dumps({"requests": State.requests, "bytes": State.bytes}).encode()
            if self.path == "/counts":
                State.requests = State.bytes = 0
        self.answer(200, [("Content-Length", str(len(body)))], [body])

    def do_GET(self):
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not asked or int(asked[1]) >= State.size:
            return self.answer(416, [("Content-Length", "0"), ("Content-Range", f"bytes */{State.size}")])
        first, last = int(asked[1]), min(int(asked[2]), State.size - 1)
        with State.lock:
            State.requests += 1
            State.bytes += last + 1 - first
        # The version is that of the contents, which do not change; that the object can grow is for the benchmark only.
        headers = [("ETag", '"endless"'), ("Content-Length", str(last + 1 - first)),
                   ("Content-Range", f"bytes {first}-{last}/{State.size}")]
        return self.answer(206, headers, pieces(first, last))


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        pass  # a client that has enough


def main():
    with open(sys.argv[1], "rb") as file:
        State.content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    State.size = len(State.content)
    server = Server(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
