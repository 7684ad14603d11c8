#!/usr/bin/env bash
# Runs the client suites against `anvilbase dev`, from start to end:
#
#   tests/clients/with-dev.sh js|python [more arguments for the runner]
#   tests/clients/with-dev.sh -- COMMAND...     any command, with the server's address and keys in its environment
#
# The server is $ANVILBASE_BIN, or target/debug/anvilbase. Its log is shown when something fails.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
binary=${ANVILBASE_BIN:-${CARGO_TARGET_DIR:-$root/target}/debug/anvilbase}
[ -x "$binary" ] || { printf 'clients: no %s; run "make build" first\n' "$binary" >&2; exit 2; }
[ $# -gt 0 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }

directory=$(mktemp -d)
chmod 711 "$directory" # as root, the private PostgreSQL runs as another user and must come through
server=
finish() {
  local status=$?
  trap - EXIT
  if [ -n "$server" ]; then
    kill -TERM "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
  fi
  if [ "$status" -ne 0 ] && [ -s "$directory/log" ]; then
    printf '== the last lines of the server\n' >&2
    tail -n 40 "$directory/log" >&2
  fi
  rm -rf "$directory"
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

mkfifo "$directory/ready"
# A server of one's own, even where DATABASE_URL names another.
env -u DATABASE_URL "$binary" dev --data-dir "$directory/data" --port 0 --output json \
  >"$directory/ready" 2>"$directory/log" &
server=$!
# The one line comes when everything is up; an end of file means that the server gave up.
IFS= read -r -t 120 ready <"$directory/ready" || { echo 'clients: the server did not start' >&2; exit 1; }

value() { node -p 'JSON.parse(process.argv[1])[process.argv[2]]' "$ready" "$1"; }
ANVILBASE_URL=$(value url)
DATABASE_URL=$(value database_url)
ANVILBASE_ANON_KEY=$(value anon_key)
ANVILBASE_SERVICE_KEY=$(value service_key)
ANVILBASE_JWT_SECRET=$(value jwt_secret)
export ANVILBASE_URL DATABASE_URL ANVILBASE_ANON_KEY ANVILBASE_SERVICE_KEY ANVILBASE_JWT_SECRET

if [ "$1" = -- ]; then
  shift
  "$@"
else
  "$here/run.sh" "$@"
fi
