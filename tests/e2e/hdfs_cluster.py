"""A real HDFS on loopback: a name node and some data nodes, each a Java process that can be killed and started again.

The jars are those that scripts/fetch_hdfs.sh fetches, or those of the directory that MUSTER_HDFS names; java is MUSTER_JAVA, or
the one on PATH. Files are written through WebHDFS. Only Python's standard library is used.
"""
import http.client
import json
import os
import shutil
import string
import subprocess
import time
import urllib.parse

from stores import Server, free_port, start

VERSION = "3.4.3"
DEAD_AFTER = 7  # seconds without a heartbeat until the name node takes a data node for dead: 2 * recheck + 10 * heartbeat below
USER = "tester"
LOG = """\
log4j.rootLogger=INFO,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{2}: %m%n
"""


def missing():
    """What keeps HDFS from being started, as a sentence; None if nothing does."""
    if not shutil.which(java()):
        return "there is no java: install openjdk-17-jre-headless, or name one in MUSTER_JAVA"
    if not os.path.exists(os.path.join(jars(), f"hadoop-hdfs-{VERSION}.jar")):
        return f"HDFS {VERSION} is not there: scripts/fetch_hdfs.sh fetches it"
    return None


def java():
    return os.environ.get("MUSTER_JAVA", "java")


def jars():
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.environ.get("MUSTER_HDFS") or os.path.join(cache, "muster", "hdfs", VERSION)


class Node(Server):
    """One process; `words` are its class and arguments. Ports and directories stay the same when it is started again."""

    def __init__(self, folder, name, *words):
        self.folder, self.name, self.words = folder, name, words

    def command(self, *words):
        # Little memory, a compiler that is quick to start, no IPv6; Hadoop looks into java.lang and java.util.
        return [java(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true",
                "--add-opens=java.base/java.lang=ALL-UNNAMED", "--add-opens=java.base/java.util=ALL-UNNAMED",
                "-cp", f"{self.folder}/conf:{jars()}/*", *words]

    def start(self):
        with open(self.log(), "a") as log:
            self.process = start(self.command(*self.words), {**os.environ, "HADOOP_USER_NAME": USER}, stdout=log, stderr=log)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def log(self):
        return os.path.join(self.folder, f"{self.name}.log")


class Hdfs:
    """`block`: bytes of an HDFS block. Blocks are not replicated: while a data node is away, its blocks are."""

    def __init__(self, folder, data_nodes=2, block=16384):
        self.folder, self.port = folder, free_port()
        # The web pages are not in the jars; without their directories the nodes do not start.
        for page in ("hdfs", "datanode"):
            os.makedirs(os.path.join(folder, "conf/webapps", page))
        with open(os.path.join(folder, "conf/log4j.properties"), "w") as f:
            f.write(LOG)
        self.configure("core-site.xml", {"fs.defaultFS": f"hdfs://127.0.0.1:{free_port()}"})
        self.configure("hdfs-site.xml", {
            "dfs.namenode.name.dir": f"file://{folder}/name", "dfs.namenode.http-address": f"127.0.0.1:{self.port}",
            "dfs.blocksize": block, "dfs.namenode.fs-limits.min-block-size": 1024, "dfs.replication": 1,
            "dfs.ls.limit": 3,  # names in one answer to the name node's own reader of directories; 1000 by default
            "dfs.heartbeat.interval": "500ms", "dfs.namenode.heartbeat.recheck-interval": 1000,
            "dfs.namenode.safemode.extension": 1000, "dfs.namenode.safemode.min.datanodes": 1,
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            "dfs.datanode.hostname": "127.0.0.1"})  # where it sends readers to
        self.name_node = Node(folder, "name-node", "org.apache.hadoop.hdfs.server.namenode.NameNode")
        self.data_nodes = []
        for number in range(data_nodes):
            options = {"data.dir": f"file://{folder}/data-{number}",
                       **{key: f"127.0.0.1:{free_port()}" for key in ("address", "http.address", "ipc.address")}}
            self.data_nodes.append(Node(folder, f"data-node-{number}", "org.apache.hadoop.hdfs.server.datanode.DataNode",
                                        *(word for key, value in options.items() for word in ("-D", f"dfs.datanode.{key}={value}"))))
        subprocess.run(self.name_node.command(*self.name_node.words, "-format", "-nonInteractive"), check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "HADOOP_USER_NAME": USER})

    def __enter__(self):
        for node in self.nodes():
            node.start()
        self.wait()
        return self

    def __exit__(self, *_):
        for node in self.nodes():
            if node.process:
                node.kill()

    def nodes(self):
        return [self.name_node, *self.data_nodes]

    def configure(self, name, values):
        with open(os.path.join(self.folder, "conf", name), "w") as f:
            f.write("<configuration>\n" + "".join(f"<property><name>{key}</name><value>{value}</value></property>\n"
                                                  for key, value in values.items()) + "</configuration>\n")

    def wait(self, seconds=120):
        """Until all data nodes have come, and files can be written."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for node in self.nodes():
                if node.process.poll() is not None:
                    raise RuntimeError(f"the {node.name} ended with {node.process.returncode}: {tail(node.log())}")
            try:
                about = self.about()
                if about["NumLiveDataNodes"] == len(self.data_nodes) and about["FSState"] == "Operational":
                    return
            except (OSError, http.client.HTTPException, ValueError, LookupError):
                pass
            time.sleep(0.2)
        raise RuntimeError(f"HDFS did not start within {seconds} s: {tail(self.name_node.log())}")

    def about(self):
        """What the name node says of itself."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", "/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState")
            return json.loads(connection.getresponse().read())["beans"][0]
        finally:
            connection.close()

    def address(self, path):
        """As a job names it."""
        return f"webhdfs://127.0.0.1:{self.port}{path}"

    def ask(self, method, path, operation, expected=200, **query):
        """The answer of the name node."""
        url = f"/webhdfs/v1{urllib.parse.quote(path)}?" + urllib.parse.urlencode({"op": operation, "user.name": USER, **query})
        return self.request("127.0.0.1", self.port, method, url, None, expected)

    def request(self, host, port, method, url, body, expected):
        connection = http.client.HTTPConnection(host, port, timeout=60)
        try:
            connection.request(method, url, body)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if answer.status != expected:
            raise RuntimeError(f"HDFS: {method} {url}: {answer.status} {text[:300]}")
        return json.loads(text) if text else None

    def put(self, path, contents):
        """Replaces a file that is there."""
        # Of names outside ASCII the location is not encoded.
        location = self.ask("PUT", path, "CREATE", overwrite="true", noredirect="true")["Location"]
        where = urllib.parse.urlsplit(urllib.parse.quote(location, safe=string.punctuation))
        self.request(where.hostname, where.port, "PUT", f"{where.path}?{where.query}", contents, 201)

    def delete(self, path):
        self.ask("DELETE", path, "DELETE", recursive="true")

    def hosts_of_blocks(self, path):
        """For each block of a file, which data node has it."""
        found = self.ask("GET", path, "GETFILEBLOCKLOCATIONS")["BlockLocations"]["BlockLocation"]
        return [name for block in found for name in block["names"]]

    def upload(self, folder, prefix):
        """All files below the folder. Its address, for a job."""
        for root, _, names in os.walk(folder):
            for name in names:
                local = os.path.join(root, name)
                with open(local, "rb") as f:
                    self.put(f"/{prefix}/{os.path.relpath(local, folder)}", f.read())
        return self.address(f"/{prefix}")


def tail(path):
    with open(path, errors="replace") as f:
        return "".join(f.readlines()[-15:])
