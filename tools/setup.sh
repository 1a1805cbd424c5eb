#!/bin/sh
# Build .venv, or bring it up to date, and do nothing when there is nothing to do.
# The stamp holds the checksum of what was installed and is written last, so that an
# environment that was left half-built is known by its absence and built anew.
set -eu

cd "$(dirname "$0")/.."
venv=.venv
stamp=$venv/installed
wanted=$(cat requirements.txt requirements-dev.txt | cksum)

works() { "$venv/bin/python" -c 'import pip' >/dev/null 2>&1; }

if works && [ -f "$stamp" ]; then
    [ "$(cat "$stamp")" = "$wanted" ] && exit 0
    rm "$stamp"
else
    python=$(sh tools/find-python.sh)
    echo "Building $venv with $("$python" --version); the first time takes a few minutes."
    rm -rf "$venv"
    "$python" -m venv "$venv"
fi

"$venv/bin/python" -m pip install -qq --disable-pip-version-check -r requirements-dev.txt
echo "$wanted" >"$stamp"
