#!/usr/bin/env bash
# Fuzzes every target in the module, two at a time, and prints how often each ran. It searches
# for the targets, so that none can be forgotten.
#
#   fuzz.sh              3 s for each target, as in .ci/run
#   fuzz.sh 300 deep     300 s for each target, guided by the dependencies, too
#
# Fuzzing is guided by counters of which code an input reaches. By default only the packages of this
# module have them. With "deep" all dependencies have them: that takes three minutes to compile.
#
# An input that fails is left in the package's testdata/fuzz. Fix the bug and commit the file, which
# is a test from then on.
set -euo pipefail
cd "$(dirname "$0")/.."

export seconds=${1:-3}
counters='-gcflags=./...=-d=libfuzzer'
[[ ${2:-} != deep ]] || counters=-fuzz=.
work=$(mktemp -d)
export work
trap 'rm -rf "$work"' EXIT

# Packages with their targets: <import path> <directory> <target>.
go list -f '{{.ImportPath}} {{.Dir}}' ./... | while read -r package dir; do
	{ grep -hoE '^func Fuzz\w*' "$dir"/*_test.go 2>/dev/null || true; } | while read -r _ target; do
		echo "$package $dir $target"
	done
done >"$work/targets"
[[ -s $work/targets ]] || { echo "there is no target" && exit 1; }

# One program for all targets of a package. Other steps vet it.
cut -d ' ' -f 1 "$work/targets" | sort -u | while read -r package; do
	go test -c -vet=off "$counters" -o "$work/bin/${package//\//_}" "$package"
done
echo "built after $SECONDS s"

fuzz() {
	local package=$1 dir=$2 target=$3 log status=0 runs
	log=$work/$target.${package//\//_}
	# An interrupt ends it, and not -test.fuzztime, whose end Go before 1.27 now and then takes
	# for a failure (go.dev/issue/75804). It goes to the coordinator alone: a worker that ends
	# before its coordinator knows counts as a failure, too.
	(cd "$dir" && exec timeout --foreground --preserve-status --signal=INT --kill-after=30 "$seconds" \
		"$work/bin/${package//\//_}" -test.run='^$' -test.fuzz="^$target\$" \
		-test.fuzzminimizetime=1s -test.parallel=1 \
		-test.fuzzcachedir="$(go env GOCACHE)/fuzz/$package") >"$log" 2>&1 </dev/null || status=$?
	# Without counters it says nothing of what is interesting.
	runs=$(grep 'new interesting: ' "$log" | grep -oE 'execs: [0-9]+' | tail -n 1 | cut -d ' ' -f 2 || true)
	if ((status != 0 || ${runs:-0} == 0)); then
		printf '%s.%s: exit status %d\n' "$package" "$target" "$status"
		cat "$log"
		return 1
	fi
	printf '%-40s %-50s %9d executions\n' "${package#*/*/}" "$target" "$runs"
}
export -f fuzz

# One worker each: as many as there are processors would be twice as many processes.
xargs -P 2 -L 1 bash -c 'fuzz "$@"' fuzz <"$work/targets"
echo "$(wc -l <"$work/targets") targets in $SECONDS s"
