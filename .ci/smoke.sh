#!/usr/bin/env bash
# Starts the example as its README says, and asks it more often than it allows.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
server=
stop() {
	# go run is the parent of the server and does not pass signals on; the two are a process group.
	[[ -z $server ]] || kill -- "-$server" 2>/dev/null || true
	rm -rf "$work"
}
trap stop EXIT

fail() {
	echo "smoke: $1" >&2
	cat "$work/log" >&2
	exit 1
}

# A port that was free a moment ago; another is tried if it is taken by then.
start() {
	local port
	for _ in 1 2 3; do
		port=$((20000 + RANDOM % 10000))
		(exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && continue
		url=http://127.0.0.1:$port/
		PORT=$port LIMITER_SQLITE=$work/limiter.db setsid \
			go run -exec "env -C $work" ./examples/lambda >"$work/log" 2>&1 </dev/null &
		server=$!
		# Four minutes: on a cold cache SQLite is compiled first.
		for _ in {1..480}; do
			if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then return; fi
			kill -0 "$server" 2>/dev/null || break
			sleep 0.5
		done
		grep -q 'address already in use' "$work/log" || break
	done
	fail "the example does not listen"
}

start
for i in {1..20}; do
	curl -sS --max-time 10 -o /dev/null -D "$work/head.$i" "$url" || fail "request $i was not answered"
done

first=$(awk 'NR == 1 {print $2}' "$work/head.1")
[[ $first == 200 ]] || fail "the first request was answered $first, want 200"
refused=0
for i in {1..20}; do
	[[ $(awk 'NR == 1 {print $2}' "$work/head.$i") == 429 ]] || continue
	refused=$((refused + 1))
	grep -qiE '^retry-after: [1-9][0-9]*[[:space:]]*$' "$work/head.$i" ||
		fail "a refusal has no Retry-After: $(cat "$work/head.$i")"
done
((refused > 0)) || fail "none of 20 requests was refused"
echo "$refused of 20 requests were refused, each with Retry-After"
