#!/usr/bin/env bash
# Builds the image limiter-test/postgres:<major> from Debian packages, so that the tests need no
# registry. An image that this very script built before is kept.
#
#   image.sh <major> <suite>        for example: image.sh 17 trixie
set -euo pipefail
cd "$(dirname "$0")"

major=$1
suite=$2
image=limiter-test/postgres:$major
recipe=$(cat image.sh postgres-entrypoint.sh - <<<"$major $suite" | sha256sum | cut -d ' ' -f 1)

built=$(docker image inspect -f '{{index .Config.Labels "limiter.recipe"}}' "$image" 2>/dev/null || true)
if [[ $built == "$recipe" ]]; then
	echo "$image is up to date"
	exit
fi

work=$(mktemp -d)
root=$work/root
clean() {
	umount "$root/proc" "$root/sys" 2>/dev/null || true # of a build that was interrupted
	rm -rf --one-file-system "$work"
}
trap clean EXIT

# What apt uses to reach the archive, debootstrap needs, too.
if [[ -z ${http_proxy:-} ]]; then
	eval "$(apt-config shell http_proxy Acquire::http::Proxy)"
	[[ -z ${http_proxy:-} || $http_proxy == DIRECT ]] || export http_proxy
fi

if ! debootstrap --variant=minbase --include="postgresql-$major" "$suite" "$root" >"$work/log" 2>&1; then
	tail -n 40 "$work/log" "$root/debootstrap/debootstrap.log" >&2 || true
	exit 1
fi

# Nothing of this is needed at run time; the cluster that the package created would be in the way.
rm -rf "$root"/var/cache/* "$root"/var/lib/apt/lists/* "$root"/var/log/* \
	"$root"/var/lib/postgresql/* "$root"/etc/postgresql/* \
	"$root"/usr/share/{doc,info,locale,man} "${root:?}"/{dev,proc,sys}
mkdir "$root"/{dev,proc,sys,docker-entrypoint-initdb.d}
install -m 755 postgres-entrypoint.sh "$root/usr/local/bin/docker-entrypoint.sh"

bin=/usr/lib/postgresql/$major/bin
tar -C "$root" --numeric-owner -c . | docker import \
	--change 'ENTRYPOINT ["/usr/local/bin/docker-entrypoint.sh"]' \
	--change 'CMD ["postgres"]' \
	--change 'EXPOSE 5432/tcp' \
	--change "ENV PATH=$bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
	--change 'ENV PGDATA=/var/lib/postgresql/data' \
	--change "LABEL limiter.recipe=$recipe" \
	- "$image" >/dev/null
echo "$image built from $suite: $(docker run --rm --entrypoint postgres "$image" --version)"
