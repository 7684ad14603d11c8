#!/usr/bin/env bash
# Installs the JavaScript packages of the client tests and of the demo, exactly as their lock files say.
set -euo pipefail
# shellcheck source=tests/setup/lib.sh
. "$(dirname "$0")/lib.sh"

command -v node >/dev/null 2>&1 || die "node is missing (20 or newer is needed)"
command -v npm >/dev/null 2>&1 || die "npm is missing"
major=$(node -p 'process.versions.node.split(".")[0]')
[ "$major" -ge 20 ] || die "node $major is too old: 20 or newer is needed"

for package in tests/clients/js tests/demo; do
  cd "$setup_root/$package"
  want=$(printf '%s\n' "$(node --version)" | cat - package.json package-lock.json | sha256sum)
  if [ "$(cat node_modules/.installed 2>/dev/null || true)" = "$want" ]; then
    say "node packages of $package: present"
    continue
  fi
  say "node packages of $package: installing"
  quietly npm ci --no-progress
  printf '%s' "$want" >node_modules/.installed
done
