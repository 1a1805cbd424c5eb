#!/bin/sh
# Print the path of a Python that can build the environment: 3.12 or newer, with
# venv and pip. Every candidate is run, since a name on PATH proves nothing: it may
# be an older Python, or a shim that only says that no version is selected.
set -u

try() {
    command -v "$1" >/dev/null 2>&1 || return 1
    "$1" -c 'import sys
if sys.version_info < (3, 12):
    sys.exit(1)
import ensurepip, venv
print(sys.executable)' 2>/dev/null
}

# The versions that the checks run on come first, newer ones after them.
for candidate in python3.12 python3.13 python3.14 python3 python \
    "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.*/bin/python; do
    try "$candidate" && exit 0
done

if found=$(uv python find '>=3.12' 2>/dev/null); then
    try "$found" && exit 0
fi

echo "No usable Python of at least 3.12 was found: install one, with its venv module (Debian and Ubuntu: apt install python3 python3-venv; macOS: brew install python@3.12; anywhere: uv python install 3.12), and run make again." >&2
exit 1
