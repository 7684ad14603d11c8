#!/usr/bin/env bash
# Runs one suite of unmodified SDKs against a server that is already up:
#
#   tests/clients/run.sh js|python [more arguments for the runner]
#
# Where the server is, and its keys, come from the environment (tests/clients/README.md). Exits with a failure
# when a test fails, when none ran, and when one was skipped by itself: a suite that ran nothing proves nothing.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
suite=${1:-}
[ $# -eq 0 ] || shift

for name in ANVILBASE_URL DATABASE_URL ANVILBASE_ANON_KEY ANVILBASE_SERVICE_KEY ANVILBASE_JWT_SECRET; do
  if [ -z "${!name:-}" ]; then
    printf 'clients: %s is not set; see tests/clients/README.md\n' "$name" >&2
    exit 2
  fi
done

report=$(mktemp)
trap 'rm -f "$report"' EXIT

# The number after `# <word>` in the TAP report.
tap() { sed -n "s/^# $1 \([0-9]*\)$/\1/p" "$report" | tail -n 1; }

case "$suite" in
js)
  cd "$here/js"
  [ -d node_modules ] || { echo 'clients: run "make setup" first' >&2; exit 2; }
  files=(test/*.test.mjs)
  # The tests of two gateways need a second address.
  [ -n "${ANVILBASE_URL_2:-}" ] || files=("${files[@]/test\/gateways.test.mjs/}")
  selected=()
  for file in "${files[@]}"; do [ -z "$file" ] || selected+=("$file"); done
  status=0
  node --test --test-concurrency=4 --test-timeout=120000 \
    --test-reporter=spec --test-reporter-destination=stdout \
    --test-reporter=tap --test-reporter-destination="$report" \
    "$@" "${selected[@]}" || status=$?
  passed=$(tap pass) unproved=$(($(tap skipped) + $(tap todo) + $(tap cancelled)))
  ;;
python)
  cd "$here/python"
  python=$root/.venv/bin/python
  [ -x "$python" ] || { echo 'clients: run "make setup" first' >&2; exit 2; }
  status=0
  "$python" -m pytest -p no:cacheprovider --junit-xml="$report" "$@" || status=$?
  count() { sed -n "s/.*<testsuite [^>]*$1=\"\([0-9]*\)\".*/\1/p" "$report" | head -n 1; }
  unproved=$(count skipped)
  passed=$(($(count tests) - $(count failures) - $(count errors) - unproved))
  ;;
*)
  sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
  exit 2
  ;;
esac

printf 'clients: %s: %s passed, status %s\n' "$suite" "${passed:-0}" "$status"
[ "$status" -eq 0 ] || exit "$status"
[ $# -eq 0 ] || unproved=0 # a person who selects tests by hand means to leave the others out
if [ "${passed:-0}" -eq 0 ] || [ "${unproved:-0}" -ne 0 ]; then
  printf 'clients: %s: %s passed, %s skipped: not a proof\n' "$suite" "${passed:-0}" "${unproved:-0}" >&2
  exit 1
fi
