#!/usr/bin/env bash
# Installs the Debian packages that the other steps need and this machine lacks.
set -euo pipefail

wanted=(
	ca-certificates curl git
	gcc libc6-dev                      # the race detector is linked by the C compiler
	debootstrap debian-archive-keyring # images
	postgresql-15 pgbouncer pgpool2    # programs for the tests that run them on this host
	redis-server                       # what the benchmarks compare with
	chromium fonts-dejavu-core         # the browser that opens the example's page, and letters for it
)

missing=()
for package in "${wanted[@]}"; do
	dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q ' installed$' || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
	echo "nothing to install"
	exit
fi

# The programs are wanted, not services of them that run from now on.
services=/usr/sbin/policy-rc.d
if [[ ! -e $services ]]; then
	printf '#!/bin/sh\nexit 101\n' >"$services"
	chmod 755 "$services"
	trap 'rm -f "$services"' EXIT
fi
clusters=/etc/postgresql-common/createcluster.conf
if [[ ! -e $clusters ]]; then
	install -d "${clusters%/*}"
	echo 'create_main_cluster = false' >"$clusters"
fi

export DEBIAN_FRONTEND=noninteractive
options=(-q -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3 -o Dpkg::Use-Pty=0 -o Dpkg::Options::=--force-confold)
apt-get "${options[@]}" update
apt-get "${options[@]}" install -y --no-install-recommends "${missing[@]}"
