"""Roles and sessions: visitors by cookie, login by token, forms that only our own pages can send.

Every browser gets a random id in a cookie that scripts cannot read and other sites do not send. A form carries a code
derived from that id, so a foreign page cannot send one. If a token is set, an id has rights only after the token was
presented; the id is changed then, so that one planted beforehand is worthless. Pure except for randomness: the time is
an argument.

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

MAX_SESSIONS = 1000
SESSION_SECONDS = 12 * 3600.0
MAX_GUESSES = 20
GUESS_SECONDS = 60.0


class Role(IntEnum):
    """A visitor's role; each includes the rights of the lower ones."""

    NOBODY = 0
    VIEWER = 1
    OPERATOR = 2


@dataclass(frozen=True, slots=True)
class Session:
    """A logged-in user."""

    role: Role
    ends: float


class Visitors:
    """All visitors of one console. `chance(n)` gives random bytes."""

    def __init__(self, token: str, viewer_token: str, *, read_only: bool, chance: Callable[[int], bytes]) -> None:
        self._token = token
        self._viewer_token = viewer_token
        self._highest_role = Role.VIEWER if read_only else Role.OPERATOR
        self._chance = chance
        self._secret = chance(32)
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._guesses: list[float] = []

    @property
    def needs_login(self) -> bool:
        return bool(self._token or self._viewer_token)

    def new_id(self) -> str:
        """A new id, for a browser without one."""
        return self._chance(16).hex()

    def role(self, visitor: str, now: float) -> Role:
        """The role of this browser."""
        if not self.needs_login:
            return self._highest_role
        session = self._sessions.get(visitor)
        if session is None or session.ends <= now:
            self._sessions.pop(visitor, None)
            return Role.NOBODY
        return min(session.role, self._highest_role)

    def log_in(self, typed: str, now: float) -> str | None:
        """A new id for a user with a token; None for a wrong token, or after too many recent wrong ones."""
        self._guesses = [time for time in self._guesses if now - time < GUESS_SECONDS]
        if len(self._guesses) >= MAX_GUESSES:
            return None
        role = Role.NOBODY
        for token, grants in ((self._viewer_token, Role.VIEWER), (self._token, Role.OPERATOR)):
            if token and hmac.compare_digest(typed.encode(), token.encode()):
                role = grants
        if role is Role.NOBODY:
            self._guesses.append(now)
            return None
        while len(self._sessions) >= MAX_SESSIONS:
            self._sessions.popitem(last=False)
        visitor = self.new_id()
        self._sessions[visitor] = Session(role, now + SESSION_SECONDS)
        return visitor

    def log_out(self, visitor: str) -> None:
        self._sessions.pop(visitor, None)

    # ---- signed values

    def form_code(self, visitor: str) -> str:
        """The code that this browser's forms must carry."""
        return self._sign(f"form {visitor}")

    def is_form_code(self, visitor: str, code: str) -> bool:
        return bool(visitor) and hmac.compare_digest(self.form_code(visitor).encode(), code.encode())

    def sealed(self, value: object) -> str:
        """A value as signed text."""
        text = base64.urlsafe_b64encode(json.dumps(value).encode()).decode()
        return f"{text}.{self._sign(text)}"

    def unsealed(self, text: str) -> object:
        """The value; None if we did not sign it."""
        value, _, signature = text.rpartition(".")
        if not hmac.compare_digest(self._sign(value).encode(), signature.encode()):
            return None
        decoded: object = json.loads(base64.urlsafe_b64decode(value))
        return decoded

    def _sign(self, text: str) -> str:
        return hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()
