# Shared by the setup scripts; sourced, never run. Bash only.
# shellcheck shell=bash

setup_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

# The Makefile puts .venv/bin first; what makes .venv must not run from it.
PATH=${PATH//"$setup_root/.venv/bin:"/}

# One line per step, so that a person sees what is installed and what was there already.
say() { printf 'setup: %s\n' "$*"; }

die() {
  printf 'setup: %s\n' "$*" >&2
  exit 1
}

# Runs a command with its output kept back; the output is shown only when the command fails.
quietly() {
  local log status=0
  log=$(mktemp)
  "$@" >"$log" 2>&1 || status=$?
  if [ "$status" -ne 0 ]; then
    printf 'setup: this failed (status %s): %s\n' "$status" "$*" >&2
    cat "$log" >&2
  fi
  rm -f "$log"
  return "$status"
}

# Runs a command as root: directly, or through sudo.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null 2>&1; then
    sudo "$@"
  else
    die "root is needed for: $* (neither root nor sudo here)"
  fi
}

# npm and pip want a home to write caches to; some containers and service users have none.
if [ -z "${HOME:-}" ] || [ ! -w "${HOME:-/nonexistent}" ]; then
  npm_config_cache=${TMPDIR:-/tmp}/anvilbase-npm-cache-$(id -u)
  export npm_config_cache
  export PIP_NO_CACHE_DIR=1
fi
