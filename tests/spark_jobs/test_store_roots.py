"""Which stores a path leads to, and that a job says so where it leads to none."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from rocketlet.spark_jobs.__main__ import main
from rocketlet.spark_jobs.commit_log import list_segments, log_folders, store_roots
from rocketlet.spark_jobs.files import SeveralStores


def test_the_directory_of_a_stack_leads_to_the_store_of_its_broker(tmp_path: Path) -> None:
    (tmp_path / "namesrv").mkdir()
    log = tmp_path / "broker-a/commitlog"
    log.mkdir(parents=True)
    (log / "00000000000000000000").write_bytes(bytes(1024))
    (tmp_path / "broker-a/abort").touch()
    for path in (tmp_path, f"{tmp_path}/", f"file://{tmp_path}", tmp_path / "broker-a"):
        assert store_roots(str(path)) == [f"{'file://' if 'file:' in str(path) else ''}{tmp_path}/broker-a"]
        assert list_segments(str(path)).is_open
    assert log_folders(str(log)) == [str(log)]
    assert store_roots(f"{tmp_path}, {log}") == [f"{tmp_path}/broker-a", str(log)]
    (tmp_path / "broker-b/commitlog").mkdir(parents=True)
    with pytest.raises(SeveralStores, match=r"choose one: .*broker-a, .*broker-b"):
        store_roots(str(tmp_path))


@pytest.mark.parametrize("job", [["follow", "--once"], ["index"], ["export"], ["verify"], ["stats"]])
def test_a_job_that_ends_at_once_needs_a_store(job: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_spark(*_: object, **__: object) -> None:
        raise AssertionError("Spark is started")

    monkeypatch.setattr("rocketlet.spark_jobs.__main__.session_of", no_spark)
    out = [] if job[0] in ("verify", "stats") else ["--out", f"{tmp_path}/out"]
    result = CliRunner().invoke(main, [*job, "--store", f"{tmp_path}/none", *out])
    assert result.exit_code == 2
    assert f"there is no store at {tmp_path}/none" in result.stderr
    assert "give the store's root or its commitlog folder" in result.stderr
