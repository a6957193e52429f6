"""A host as records and ids carry it: 4 or 16 address bytes and a 32-bit port, 8 or 20 bytes in all.

All our code passes hosts in this packed form, since that is how they are stored, copied and compared; text appears only
at the edges.

Java: common/message/MessageExt.java#socketAddress2ByteBuffer
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_address

V4_SIZE = 8
V6_SIZE = 20
UNKNOWN_HOST = bytes(V4_SIZE)  # 0.0.0.0:0


@lru_cache(4096)
def pack_host(ip: str, port: int) -> bytes:
    """`10.0.0.5`, 10911 -> 8 bytes; an IPv6 address -> 20. ValueError where `ip` is no address."""
    return ip_address(ip.partition("%")[0].strip("[]")).packed + port.to_bytes(4, "big")


@lru_cache(4096)
def unpack_host(packed: bytes) -> tuple[str, int]:
    """The address as text (IPv6 compressed, without brackets) and the port."""
    if len(packed) == V4_SIZE:
        return ".".join(map(str, packed[:4])), int.from_bytes(packed[4:], "big", signed=True)
    if len(packed) == V6_SIZE:
        return str(IPv6Address(packed[:16])), int.from_bytes(packed[16:], "big", signed=True)
    raise ValueError(f"a packed host has {V4_SIZE} or {V6_SIZE} bytes, not {len(packed)}")


def host_text(packed: bytes) -> str:
    """`10.0.0.5:10911`, `[2001:db8::1]:10911`."""
    ip, port = unpack_host(packed)
    return f"{ip}:{port}" if len(packed) == V4_SIZE else f"[{ip}]:{port}"


def parse_host(address: str) -> bytes:
    """The packed form of `10.0.0.5:10911`, `[2001:db8::1]:10911` or `2001:db8::1:10911` (as Java prints it)."""
    ip, _, port = address.rpartition(":")
    return pack_host(ip.removeprefix("/"), int(port))
