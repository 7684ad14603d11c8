#!/usr/bin/env bash
# Makes the Python environment .venv (ignored by git) and installs the pinned requirements: the Python SDK and
# its tests, a current nats-server, and two cargo tools as ready-made binaries.
set -euo pipefail
# shellcheck source=tests/setup/lib.sh
. "$(dirname "$0")/lib.sh"

cd "$setup_root"
command -v python3 >/dev/null 2>&1 || die "python3 is missing (3.11 or newer is needed)"
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || die "python3 is too old: 3.11 or newer is needed"

requirements=(tests/clients/python/requirements.txt tests/setup/requirements.txt)
# The directory is part of the digest: a moved environment has wrong paths inside.
want=$( (python3 --version; pwd; cat "${requirements[@]}") | sha256sum)
if [ "$(cat .venv/.installed 2>/dev/null || true)" = "$want" ] && [ -x .venv/bin/python ]; then
  say "python packages in .venv: present"
  exit 0
fi
say "python packages in .venv: installing"
quietly python3 -m venv --clear .venv
arguments=()
for file in "${requirements[@]}"; do arguments+=(-r "$file"); done
quietly .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input "${arguments[@]}"
printf '%s' "$want" >.venv/.installed
