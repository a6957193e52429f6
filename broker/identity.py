"""The identity of this broker, towards clients and name servers and in records.

Java: broker/BrokerController.java (getBrokerAddr, getStoreHost, getHAServerAddr)
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rocketlet.common.host import parse_host
from rocketlet.common.message_id import offset_message_id


@dataclass(slots=True)
class Identity:
    """`address` is the one for clients, known once the port is bound (`listenPort` may be 0).

    `loopback_address` is the one for clients on the same host, if no address was configured.
    """

    name: str
    cluster: str
    broker_id: int
    slave: bool = False
    address: str = ""
    ha_address: str = ""
    loopback_address: str = ""
    store_host: bytes = field(default=b"", repr=False)

    def settle(self, address: str, loopback_address: str = "", store_address: str = "") -> None:
        """`store_address` is written into records if `address` is a host name: they have room only for an IP."""
        self.address = address
        self.loopback_address = loopback_address
        self.store_host = parse_host(store_address or address)

    def message_id(self, log_offset: int) -> str:
        """The offset message id of a record in our log."""
        return offset_message_id(self.store_host, log_offset)
