#!/usr/bin/env bash
# What a release needs. CONTRIBUTING.md says in which order.
#
#   bash .ci/release.sh api             compares the exported API of each published package with the last tag
#   bash .ci/release.sh tag v0.1.0      tags HEAD for each published module; it pushes nothing
#   bash .ci/release.sh build v0.1.0 D  builds the command for each platform in the directory D, with
#                                       checksums and a list of what is in each binary (SBOM)
set -euo pipefail
cd "$(dirname "$0")/.."

platforms=(linux/amd64 linux/arm64 linux/386 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64)
sbom=github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0

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
	local dir tag path breaks found=0 failed=0
	tmp=$(mktemp -d)
	trap 'rm -rf "$tmp"; git worktree prune' EXIT
	(cd prove && go build -o "$tmp/apidiff" golang.org/x/exp/cmd/apidiff)
	for dir in $(published); do
		tag=$(git describe --tags --abbrev=0 --match "$(prefix "$dir")v*" 2>/dev/null) || continue
		found=1
		path=$(sed -n 's/^module //p' "$dir/go.mod")
		[[ -d $tmp/$tag ]] || git worktree add --quiet --detach "$tmp/$tag" "$tag"
		apidiff "$tmp/$tag/$dir" -w "$tmp/old" "$path"
		breaks=$(apidiff "$dir" -incompatible "$tmp/old" "$path" | grep -vxFf .ci/api-breaks || true)
		[[ -n $breaks ]] || { echo "$path: no breaking change since $tag" && continue; }
		printf '%s: breaking changes since %s; list those that are meant in .ci/api-breaks and CHANGELOG.md:\n%s\n' "$path" "$tag" "$breaks"
		failed=1
	done
	((found)) || echo "nothing to compare: no module has a tag yet"
	return "$failed"
}

tag() {
	local version=$1 dir
	grep -q "^## \[${version#v}\] - [0-9-]*$" CHANGELOG.md || { echo "CHANGELOG.md has no section of $version with a date" && return 1; }
	for dir in $(published); do
		git tag -a -m "$dir $version" "$(prefix "$dir")$version"
		echo "$(prefix "$dir")$version"
	done
}

build() {
	local version=$1 out platform name
	mkdir -p "$2"
	out=$(realpath "$2")
	for platform in "${platforms[@]}"; do
		name=limiter_${version#v}_${platform/\//_}
		[[ $platform != windows/* ]] || name+=.exe
		CGO_ENABLED=0 GOOS=${platform%/*} GOARCH=${platform#*/} go build -trimpath -ldflags="-s -w" -o "$out/$name" ./cmd/limiter
		go run "$sbom" bin -json -version "$version" -output "$out/$name.cdx.json" "$out/$name"
	done
	(cd "$out" && sha256sum limiter_* | tee checksums.txt)
}

"$@"
