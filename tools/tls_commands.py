"""rocketlet tls: certificates for a start.

Java: (none; its documentation has openssl commands)
"""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime
from pathlib import Path

import click

from rocketlet.common import platform_files
from rocketlet.common.clock import system_clock
from rocketlet.common.errors import RocketletError
from rocketlet.tools.output import print_json

_LONGEST_DAYS = 36_500


class CertificatesThere(RocketletError):
    """Files that would be overwritten."""


@click.group()
def tls() -> None:
    """Certificates for TLS."""


@tls.command("make-certs")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A name or address that clients reach the servers by; may be given several times. [this host, and loopback]",
)
@click.option("--client", "clients", multiple=True, metavar="NAME", help="A client's name; one each. [client]")
@click.option(
    "--days", default=825, show_default=True, type=click.IntRange(1, _LONGEST_DAYS), help="How long they hold."
)
@click.option("--force", is_flag=True, help="Overwrite what is there.")
@click.option("--json", "as_json", is_flag=True, help="The files, as one JSON object.")
def make_certs(
    directory: Path, hosts: tuple[str, ...], clients: tuple[str, ...], days: int, force: bool, as_json: bool
) -> None:
    """Make an authority, a certificate for servers, and one for each client, in DIRECTORY.

    The authority's key is kept, as ca.key, for more certificates by other programs: whoever has it can make
    certificates that your servers trust, so keep it where they cannot be reached.
    """
    from rocketlet.remoting.certificates import Authority  # cryptography takes 60 ms to import

    hosts = hosts or tuple(dict.fromkeys((socket.gethostname(), "localhost", "127.0.0.1", "::1")))
    clients = clients or ("client",)
    authority = Authority("Rocketlet CA", days, datetime.fromtimestamp(system_clock() / 1000, UTC))
    files = {"ca.pem": authority.certificate, "ca.key": authority.key}
    server = authority.issue(hosts[0], hosts, server=True)
    files |= {"server.pem": server.certificate, "server.key": server.key}
    for name in clients:
        if name in ("ca", "server") or "/" in name or name.startswith("."):
            raise click.UsageError(f"--client {name}: choose another name; it becomes the name of two files")
        issued = authority.issue(name, (), server=False)
        files |= {f"{name}.pem": issued.certificate, f"{name}.key": issued.key}
    _write(directory, files, force=force)
    if as_json:
        print_json({name: str(directory / name) for name in files})
        return
    for line in _advice(directory.absolute(), clients[0], hosts):
        click.echo(line)


def _write(directory: Path, files: dict[str, bytes], *, force: bool) -> None:
    present = [name for name in files if (directory / name).exists()]
    if present and not force:
        raise CertificatesThere(f"{directory} has {', '.join(present)} already; --force overwrites them")
    directory.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        path = directory / name
        path.unlink(missing_ok=True)
        mode = 0o600 if name.endswith(".key") else 0o644
        descriptor = os.open(path, platform_files.CREATE, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)


def _advice(folder: Path, client: str, hosts: tuple[str, ...]) -> list[str]:
    return [
        f"certificates are in {folder}; servers are {', '.join(hosts)}",
        "",
        "# in the files of broker and name server",
        "tls.server.mode=enforcing",
        f"tls.server.certPath={folder}/server.pem",
        f"tls.server.keyPath={folder}/server.key",
        "# clients without a certificate of theirs are refused, with these two",
        "# tls.server.need.client.auth=require",
        f"# tls.server.trustCertPath={folder}/ca.pem",
        "# and with access control, the account that a certificate stands for",
        f"# tlsAccounts={client}=ACCOUNT",
        "",
        "# and in that of the broker, which is a client of the name server",
        "useTLS=true",
        "tls.client.authServer=true",
        f"tls.client.trustCertPath={folder}/ca.pem",
        "",
        "# Python:",
        f'# Producer("group", tls=True, tls_ca_file="{folder}/ca.pem",',
        f'#          tls_cert_file="{folder}/{client}.pem", tls_key_file="{folder}/{client}.key")',
        "# Java: -Dtls.enable=true -Dtls.test.mode.enable=false -Dtls.client.authServer=true",
        f"#       -Dtls.client.trustCertPath={folder}/ca.pem",
        f"#       -Dtls.client.certPath={folder}/{client}.pem -Dtls.client.keyPath={folder}/{client}.key",
    ]
