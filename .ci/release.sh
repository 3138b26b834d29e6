#!/usr/bin/env bash
# What a release needs. CONTRIBUTING.md says in which order.
#
#   bash .ci/release.sh api             compares the exported API of each published package with the last tag
#   bash .ci/release.sh tag v0.1.0      tags HEAD for each published module; it pushes nothing
#   bash .ci/release.sh build v0.1.0 D  builds the command for each platform in the new directory D, with
#                                       checksums and a list of what is in each binary (SBOM)
set -euo pipefail
here=$PWD
cd "$(dirname "$0")/.."

platforms=(linux/amd64 linux/arm64 linux/386 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64)
sbom=github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0

fail() { echo "$*" >&2 && exit 1; }

[[ ${1:-} == api || ${2:-} =~ ^v[0-9]+\.[0-9]+\.[0-9]+$ ]] || fail "the version is ${2:-missing}; pass one like v0.1.0"

# published prints the directories of the published modules: the others replace the root module, so
# nobody else could build them.
published() {
	local dir
	go list -m -f '{{.Dir}}' | while read -r dir; do
		grep -q '^replace ' "$dir/go.mod" || realpath --relative-to=. "$dir"
	done
}

# prefix prints how the tags of a module in a directory begin.
prefix() { [[ $1 == . ]] || echo "$1/"; }

# apidiff runs the tool, a dependency of ./prove, in a directory of a module. The root does without the
# workspace, which would also give it the packages of the other modules.
apidiff() {
	local dir=$1
	shift
	[[ $dir != . && $dir != */. ]] || local -x GOWORK=off
	(cd "$dir" && "$tmp/apidiff" -m "$@" 2>&1) | sed '/^Ignoring internal package/d'
}

# A deliberate break is listed in .ci/api-breaks until the next tag, and in the changelog.
api() {
	local dirs dir tag path tree changes breaks found=0 failed=0
	[[ $(git rev-parse --is-shallow-repository) == false ]] || fail "this clone is shallow; fetch all tags"
	dirs=$(published)
	tmp=$(mktemp -d)
	trap 'for tree in "$tmp"/trees/*; do [[ ! -e $tree ]] || git worktree remove --force "$tree"; done; rm -rf "$tmp"' EXIT
	(cd prove && go build -o "$tmp/apidiff" golang.org/x/exp/cmd/apidiff)
	for dir in $dirs; do
		tag=$(git tag --list --merged HEAD --sort=-version:refname "$(prefix "$dir")v*" | head -1)
		[[ -n $tag ]] || continue
		found=1
		path=$(sed -n 's/^module //p' "$dir/go.mod")
		tree=$tmp/trees/${tag//\//-}
		git worktree add --quiet --detach "$tree" "$tag"
		apidiff "$tree/$dir" -w "$tmp/old" "$path"
		changes=$(apidiff "$dir" -incompatible "$tmp/old" "$path")
		breaks=$(grep -vxFf .ci/api-breaks <<<"$changes" || true)
		[[ -n $breaks ]] || { echo "$path: no breaking change since $tag" && continue; }
		printf '%s: breaking changes since %s; list those that are meant in .ci/api-breaks and CHANGELOG.md:\n%s\n' "$path" "$tag" "$breaks"
		failed=1
	done
	((found)) || echo "nothing to compare: no module has a tag yet"
	return "$failed"
}

tag() {
	local version=$1 dirs dir tag tags=()
	[[ -z $(git status --porcelain) ]] || fail "commit all changes first"
	grep -qE "^## \[${version#v}\] - [0-9]{4}-[0-9]{2}-[0-9]{2}$" CHANGELOG.md || fail "CHANGELOG.md has no section of $version with a date"
	dirs=$(published)
	for dir in $dirs; do
		tags+=("$(prefix "$dir")$version")
		[[ -z $(git tag --list "${tags[-1]}") ]] || fail "the tag ${tags[-1]} exists"
	done
	for tag in "${tags[@]}"; do git tag -a -m "$tag" "$tag"; done
	printf '%s\n' "${tags[@]}"
}

build() {
	local version=$1 out platform name
	out=$(cd "$here" && realpath "$2")
	mkdir "$out"
	for platform in "${platforms[@]}"; do
		name=limiter_${version#v}_${platform/\//_}
		[[ $platform != windows/* ]] || name+=.exe
		CGO_ENABLED=0 GOOS=${platform%/*} GOARCH=${platform#*/} go build -trimpath -ldflags="-s -w" -o "$out/$name" ./cmd/limiter
		go run "$sbom" bin -json -version "$version" -output "$out/$name.cdx.json" "$out/$name"
	done
	(cd "$out" && sha256sum limiter_* | tee checksums.txt)
}

"$@"
