#!/usr/bin/env bash
# Installs what only the system's package manager has: PostgreSQL's server binaries, nats-server, pgbouncer, and, where
# they are missing, a C linker (Rust needs one) and Python's venv module. Never leaves a service running and
# makes no database cluster: the tests start servers of their own on temporary directories.
set -euo pipefail
# shellcheck source=tests/setup/lib.sh
. "$(dirname "$0")/lib.sh"

have_postgres() {
  command -v postgres >/dev/null 2>&1 || compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null
}
have_nats() { command -v nats-server >/dev/null 2>&1 || [ -x /usr/sbin/nats-server ]; }
have_pgbouncer() { command -v pgbouncer >/dev/null 2>&1 || [ -x /usr/sbin/pgbouncer ]; }
have_venv() { python3 -c 'import ensurepip, venv' >/dev/null 2>&1; }

missing=()
have_postgres || missing+=(postgresql)
have_nats || missing+=(nats-server)
have_pgbouncer || missing+=(pgbouncer)
have_venv || missing+=(python3-venv)
command -v cc >/dev/null 2>&1 || missing+=(gcc libc6-dev)
for tool in "$@"; do # extra programs whose package has the program's name, such as shellcheck
  command -v "$tool" >/dev/null 2>&1 || missing+=("$tool")
done

if [ ${#missing[@]} -eq 0 ]; then
  say "system packages: present"
  exit 0
fi
command -v apt-get >/dev/null 2>&1 ||
  die "no apt-get here; please install by hand: ${missing[*]}"

say "system packages: installing ${missing[*]}"
apt() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@"; }
install() { quietly apt install --no-install-recommends -y "$@"; }

# While packages are unpacked, init scripts are told not to start anything (exit status 101 means "forbidden").
# A policy that the machine already has is left alone.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  trap 'as_root rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
  as_root chmod 755 "$policy"
fi

quietly apt update
case " ${missing[*]} " in
*" postgresql "*)
  # postgresql-common decides whether a first installation makes a cluster: it must be told before.
  install postgresql-common
  clusters=/etc/postgresql-common/createcluster.conf
  if ! grep -q '^create_main_cluster *= *false' "$clusters" 2>/dev/null; then
    printf 'create_main_cluster = false\n' | as_root tee -a "$clusters" >/dev/null
  fi
  ;;
esac
install "${missing[@]}"

# These packages enable their units, which would start at the next boot.
for unit in nats-server pgbouncer; do
  case " ${missing[*]} " in
  *" $unit "*)
    if command -v systemctl >/dev/null 2>&1; then
      as_root systemctl disable "$unit.service" >/dev/null 2>&1 || true
    fi
    ;;
  esac
done
