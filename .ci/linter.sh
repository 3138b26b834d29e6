#!/usr/bin/env bash
# Prints the path of golangci-lint, and builds it first if this machine has not done so: with the Go
# that is used here, as it refuses code for a Go newer than its own.
set -euo pipefail

version=v2.15.0
bin=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/limiter-ci/golangci-lint-$version-$(go env GOVERSION)
if [[ ! -x $bin/golangci-lint ]]; then
	GOBIN=$bin go install "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$version" >&2
fi
echo "$bin/golangci-lint"
