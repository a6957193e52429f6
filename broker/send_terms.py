"""What holds for every send until a setting, the broker's address or its state changes: one value, replaced as a whole.

The broker makes a new one whenever one of these has changed, and every ten seconds, because
`startAcceptSendRequestTimeStamp` is a time. Handlers read `terms.now` once a send and never change it.

Java: (none)
"""

from __future__ import annotations

from dataclasses import dataclass

from rocketlet.broker.config import BrokerConfig
from rocketlet.common.host import V4_SIZE
from rocketlet.remoting.ready_answers import SendAnswer


@dataclass(frozen=True, slots=True)
class SendTerms:
    """`waits`: whether an acknowledgment promises more than that the message is written (`broker/durability.py`).

    `ready` makes the frame that says nothing but success. `is_open`: nothing that concerns the broker as a whole stands
    against a send, so that only the send itself has to be checked.
    """

    store_host: bytes = b""
    waits: bool = False
    ready: SendAnswer | None = None
    is_open: bool = False


class CurrentTerms:
    """Holds the terms of the moment; at first those of a broker that is not open yet."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = SendTerms()


def send_terms(config: BrokerConfig, store_host: bytes, *, waits: bool, is_open: bool) -> SendTerms:
    """The terms of a broker with that address."""
    ready = SendAnswer(config.region_id, config.trace_on, store_host) if len(store_host) == V4_SIZE else None
    return SendTerms(store_host, waits, ready, is_open)
