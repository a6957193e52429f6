"""Who may do what: visitors by cookie, log-in by token, forms that only our own pages can send.

Every browser gets a random id in a cookie that scripts cannot read and other sites do not send. A form carries a code
made of that id, so a foreign page cannot send one. Where a token is set, an id is worth something only after
it was shown; the id is changed then, so that one planted beforehand is worth nothing. Pure but for chance: the time is
given.

Java: rocketmq-dashboard's service/impl/LoginServiceImpl.java
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

MOST_SESSIONS = 1000
SESSION_SECONDS = 12 * 3600.0
MOST_GUESSES = 20
GUESS_SECONDS = 60.0


class Role(IntEnum):
    """What a visitor may do; each may do what those below it may."""

    NOBODY = 0
    VIEWER = 1
    OPERATOR = 2


@dataclass(frozen=True, slots=True)
class Session:
    """A user who has logged in."""

    role: Role
    ends: float


class Visitors:
    """All visitors of one console. `chance(n)` gives random bytes."""

    def __init__(self, token: str, viewer_token: str, *, read_only: bool, chance: Callable[[int], bytes]) -> None:
        self._token = token
        self._viewer_token = viewer_token
        self._most = Role.VIEWER if read_only else Role.OPERATOR
        self._chance = chance
        self._secret = chance(32)
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._guesses: list[float] = []

    @property
    def needs_login(self) -> bool:
        return bool(self._token or self._viewer_token)

    def new_id(self) -> str:
        """For a browser that has none."""
        return self._chance(16).hex()

    def role(self, visitor: str, now: float) -> Role:
        """What this browser may do."""
        if not self.needs_login:
            return self._most
        session = self._sessions.get(visitor)
        if session is None or session.ends <= now:
            self._sessions.pop(visitor, None)
            return Role.NOBODY
        return min(session.role, self._most)

    def log_in(self, said: str, now: float) -> str | None:
        """A new id for a user with a token; None for a wrong token, or after too many wrong ones of late."""
        self._guesses = [time for time in self._guesses if now - time < GUESS_SECONDS]
        if len(self._guesses) >= MOST_GUESSES:
            return None
        role = Role.NOBODY
        for token, grants in ((self._viewer_token, Role.VIEWER), (self._token, Role.OPERATOR)):
            if token and hmac.compare_digest(said.encode(), token.encode()):
                role = grants
        if role is Role.NOBODY:
            self._guesses.append(now)
            return None
        while len(self._sessions) >= MOST_SESSIONS:
            self._sessions.popitem(last=False)
        visitor = self.new_id()
        self._sessions[visitor] = Session(role, now + SESSION_SECONDS)
        return visitor

    def log_out(self, visitor: str) -> None:
        self._sessions.pop(visitor, None)

    # ---- what only we can have made

    def form_code(self, visitor: str) -> str:
        """What a form of this browser's must carry."""
        return self._sign(f"form {visitor}")

    def is_form_code(self, visitor: str, code: str) -> bool:
        return bool(visitor) and hmac.compare_digest(self.form_code(visitor).encode(), code.encode())

    def sealed(self, value: object) -> str:
        """A value as text that only we can make."""
        text = base64.urlsafe_b64encode(json.dumps(value).encode()).decode()
        return f"{text}.{self._sign(text)}"

    def unsealed(self, text: str) -> object:
        """The value; None for what we did not seal."""
        value, _, signature = text.rpartition(".")
        if not hmac.compare_digest(self._sign(value).encode(), signature.encode()):
            return None
        found: object = json.loads(base64.urlsafe_b64decode(value))
        return found

    def _sign(self, text: str) -> str:
        return hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()
