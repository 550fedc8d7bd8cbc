"""What stands between a company's machines and its brokers: an HTTP proxy, or Pulsar's own."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import psutil
import requests

from pulsar_lakehouse.downloads.artifacts import pulsar_home
from pulsar_lakehouse.jvm.java import java_home
from pulsar_lakehouse.local.processes import HOST, begun_by, end, free_port
from pulsar_lakehouse.progress import wait_until
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.settings import Settings, environment_of_others
from tests.s3 import answers
from tests.tokens import AUTHENTICATION, token


@dataclass
class Passed:
    """What has gone through."""

    url: str = ""
    seen: list[str] = field(default_factory=list)


@contextmanager
def http_proxy(names: dict[str, str]) -> Iterator[Passed]:
    """An HTTP proxy that alone knows the hosts of these names."""
    passed = Passed()

    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            passed.seen.append(asked.netloc)
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            url = asked._replace(netloc=names[asked.netloc]).geturl()
            with requests.Session() as session:
                session.trust_env = False
                answer = session.request(self.command, url, headers=dict(self.headers), data=content)
            self.send_response(answer.status_code, answer.reason)
            for name, value in answer.headers.items():
                if name.startswith("X-Pulsar") or name in ("Content-Type",):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer((HOST, 0), Proxy) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        passed.url = f"http://{HOST}:{server.server_port}"
        yield passed
        server.shutdown()


@contextmanager
def pulsar_proxy(folder: Path, broker: Endpoint, settings: Settings) -> Iterator[Endpoint]:
    """Pulsar's proxy before a broker. It passes on the credentials of its clients, and has the role `proxy`."""
    home, ports = pulsar_home(settings.cache), (free_port(), free_port())
    values = {
        "brokerServiceURL": broker.service_url,
        "brokerWebServiceURL": broker.admin_url,
        "servicePort": ports[0],
        "webServicePort": ports[1],
        "bindAddress": HOST,
        "advertisedAddress": HOST,
        "brokerProxyAllowedTargetPorts": "*",
        "brokerProxyAllowedHostNames": HOST,
        "brokerProxyAllowedIPAddresses": HOST,
        "clusterName": "standalone",
        "authorizationEnabled": "false",  # which needs the broker's metadata store
        "forwardAuthorizationCredentials": "true",
    }
    given = AUTHENTICATION.replace(token("owner"), token("proxy")) + "".join(f"{k}={v}\n" for k, v in values.items())
    (folder / "proxy.conf").write_text((home / "conf" / "proxy.conf").read_text() + given)
    environment = environment_of_others() | {
        "JAVA_HOME": str(java_home()),
        "PULSAR_PROXY_CONF": str(folder / "proxy.conf"),
        "PULSAR_LOG_DIR": str(folder),
        "PULSAR_LOG_LEVEL": "warn",
        "PULSAR_MEM": "-Xms64m -Xmx256m -XX:MaxDirectMemorySize=256m",
        "PULSAR_GC": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "PULSAR_GC_LOG": "-Xlog:gc=off",
    }
    with (folder / "proxy.log").open("wb") as log:
        command: list[str | Path] = [home / "bin" / "pulsar", "proxy"]
        process = psutil.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        assert wait_until(lambda: all(map(answers, ports)), "Starting the proxy", 60), (
            folder / "proxy.log"
        ).read_text()
        yield Endpoint(service_url=f"pulsar://{HOST}:{ports[0]}", admin_url=f"http://{HOST}:{ports[1]}")
    finally:
        end(begun_by({process.pid: process.create_time()}), 20)
