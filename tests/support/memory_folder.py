"""A folder of access control's files in memory, and the account files that tests use."""

from __future__ import annotations

from rocketlet.access.folder import State

HOME = "/conf"


class MemoryFolder:
    """See access.folder.Folder. `contents` is by path; each write creates a newer file."""

    blocking = False
    default_path = f"{HOME}/plain_acl.yml"
    tools_path = f"{HOME}/tools.yml"

    def __init__(self, text: str = "", **more: str) -> None:
        """`more`: files of acl/, by their names without .yml."""
        self.contents: dict[str, bytes] = {f"{HOME}/acl/{name}.yml": content.encode() for name, content in more.items()}
        if text:
            self.contents[self.default_path] = text.encode()
        self._times = dict.fromkeys(self.contents, 0)
        self._writes = 0
        self.fails = False

    def state(self) -> State:
        paths = sorted(path for path in self.contents if "/acl/" in path)
        if self.default_path in self.contents:
            paths.append(self.default_path)
        return tuple((path, self._times.get(path, 0), len(self.contents[path]), 1) for path in paths)

    def read(self, path: str) -> bytes | None:
        return self.contents.get(path)

    def replace(self, path: str, data: bytes) -> None:
        if self.fails:
            raise OSError(28, "No space left on device", path)
        self._writes += 1
        self.contents[path] = data
        self._times[path] = self._writes

    def write(self, text: str, path: str = "") -> None:
        """Write as with an editor."""
        self.replace(path or self.default_path, text.encode())


def account(
    key: str,
    *,
    secret: str = "correct-horse",
    white: str = "",
    admin: bool = False,
    topic: str = "DENY",
    group: str = "DENY",
    topics: tuple[str, ...] = (),
    groups: tuple[str, ...] = (),
) -> str:
    """The lines of one account."""
    lines = [
        f"- accessKey: {key}",
        f"  secretKey: {secret}",
        f"  whiteRemoteAddress: {white}",
        f"  admin: {'true' if admin else 'false'}",
        f"  defaultTopicPerm: {topic}",
        f"  defaultGroupPerm: {group}",
        "  topicPerms:",
        *(f"  - {line}" for line in topics),
        "  groupPerms:",
        *(f"  - {line}" for line in groups),
    ]
    return "\n".join(lines) + "\n"


def accounts(*entries: str, everywhere: tuple[str, ...] = ()) -> str:
    """A whole file."""
    white = "".join(f"- {address}\n" for address in everywhere)
    return f"globalWhiteRemoteAddresses:\n{white}accounts:\n{''.join(entries)}"
