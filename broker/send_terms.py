"""What applies to every send until a setting, the broker's address or its state changes: one value, replaced as a
whole.

The broker creates a new one whenever one of these has changed, and every ten seconds, because
`startAcceptSendRequestTimeStamp` is a time. Handlers read `terms.now` once per send and never change it.

Java: (none)
"""

from __future__ import annotations

from dataclasses import dataclass

from rocketlet.broker.config import BrokerConfig
from rocketlet.common.host import V4_SIZE
from rocketlet.remoting.ready_answers import SendAnswer


@dataclass(frozen=True, slots=True)
class SendTerms:
    """`waits`: whether an acknowledgment promises more than the write (`broker/durability.py`).

    `ready` encodes the frame of a bare success. `is_open`: no broker-wide reason to refuse a send, so that only the
    send itself has to be checked.
    """

    store_host: bytes = b""
    waits: bool = False
    ready: SendAnswer | None = None
    is_open: bool = False


class CurrentTerms:
    """Holds the current terms; initially those of a broker that is not open yet."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = SendTerms()


def send_terms(config: BrokerConfig, store_host: bytes, *, waits: bool, is_open: bool) -> SendTerms:
    """The terms for a broker with that address."""
    ready = SendAnswer(config.region_id, config.trace_on, store_host) if len(store_host) == V4_SIZE else None
    return SendTerms(store_host, waits, ready, is_open)
