"""After a power cut at any moment the file holds the old content or the new one, and after `replace` the new one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketlet.namesrv.durable_file import DurableFile, Files, RealFiles


class PowerCut(Exception):
    pass


class ForgetfulFiles:
    """Names in memory. A power cut keeps any subset of the changes of names since the folder was last synced."""

    blocking = False

    def __init__(self, held: dict[str, bytes], calls_until_cut: int = 1_000_000) -> None:
        self.names = dict(held)
        self.safe = dict(held)
        self.pending: list[tuple[str | None, str, bytes]] = []
        self.calls_left = calls_until_cut

    def step(self) -> None:
        if self.calls_left == 0:
            raise PowerCut
        self.calls_left -= 1

    def read(self, path: str) -> bytes | None:
        return self.names.get(path)

    def write(self, path: str, data: bytes) -> None:
        self.step()
        self.names[path] = data
        self.pending.append((None, path, data))

    def rename(self, old: str, new: str) -> None:
        self.step()
        self.names[new] = self.names.pop(old)
        self.pending.append((old, new, self.names[new]))

    def sync_folder(self, path: str) -> None:
        self.step()
        self.safe, self.pending = dict(self.names), []

    def after_a_cut(self) -> Iterator[dict[str, bytes]]:
        for kept in itertools.product([False, True], repeat=len(self.pending)):
            left = dict(self.safe)
            for (old, new, data), happened in zip(self.pending, kept, strict=True):
                if happened:
                    left[new] = data
                    if old is not None:
                        left.pop(old, None)
            yield left


@pytest.mark.parametrize("calls", range(6))
async def test_a_power_cut_leaves_the_old_content_or_the_new(calls: int) -> None:
    files = ForgetfulFiles({"/d/kv": b"old", "/d/kv.bak": b"older"}, calls)
    done = True
    try:
        await DurableFile("/d/kv", files).replace(b"new")
    except PowerCut:
        done = False
    assert done == (calls >= 5)
    for left in files.after_a_cut():
        assert left["/d/kv"] in ([b"new"] if done else [b"old", b"new"])
        assert left["/d/kv.bak"] in (b"old", b"older")
        assert left["/d/kv"] == b"old" or left["/d/kv.bak"] in (b"old", b"older")


async def test_the_first_content_has_no_backup() -> None:
    files = ForgetfulFiles({})
    file = DurableFile("kv", files)
    assert file.read() is None
    await file.replace(b"new")
    assert files.safe == {"kv": b"new"}


@pytest.fixture(params=["real", "memory"])
def files(request: pytest.FixtureRequest) -> Files:
    return RealFiles() if request.param == "real" else ForgetfulFiles({})


async def test_content_and_backup(files: Files, tmp_path: Path) -> None:
    file = DurableFile(str(tmp_path / "not yet there" / "kv.json"), files)
    assert (file.read(), file.read_backup()) == (None, None)
    await file.replace(b"one")
    await file.replace(b"two")
    assert (file.read(), file.read_backup()) == (b"two", b"one")


async def test_no_temporary_files_remain(tmp_path: Path) -> None:
    file = DurableFile(str(tmp_path / "kv.json"))
    await file.replace(b"one")
    await file.replace(b"two")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kv.json", "kv.json.bak"]
    assert (tmp_path / "kv.json").stat().st_mode & 0o007 == 0


async def test_a_folder_that_cannot_be_created_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match="file"):
        await DurableFile(str(tmp_path / "file" / "kv.json")).replace(b"x")
