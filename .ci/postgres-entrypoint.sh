#!/bin/sh
# Entry point of the PostgreSQL images that image.sh builds. It keeps the contract of the official
# images as far as tests need it: POSTGRES_USER, POSTGRES_PASSWORD and POSTGRES_DB, scripts in
# /docker-entrypoint-initdb.d, and the line "database system is ready to accept connections" twice
# before the server can be reached, which is what testcontainers waits for.
set -eu

: "${POSTGRES_USER:=postgres}"
: "${POSTGRES_DB:=$POSTGRES_USER}"

case "${1:-}" in
'' | -*) set -- postgres "$@" ;;
esac

# The server refuses to run as root.
if [ "$(id -u)" = 0 ]; then
	install -d -m 700 -o postgres -g postgres "$PGDATA"
	install -d -m 755 -o postgres -g postgres /var/run/postgresql
	exec setpriv --reuid=postgres --regid=postgres --init-groups -- "$0" "$@"
fi

query() { psql -X -q -v ON_ERROR_STOP=1 -U "$POSTGRES_USER" "$@"; }

run_init_scripts() {
	for script in /docker-entrypoint-initdb.d/*; do
		case "$script" in
		*.sh) sh "$script" ;;
		*.sql) query -d "$POSTGRES_DB" -f "$script" ;;
		esac
	done
}

initialize() {
	: "${POSTGRES_PASSWORD:?must be set}"
	passwords=$(mktemp)
	printf '%s\n' "$POSTGRES_PASSWORD" >"$passwords"
	# A linguistic collation, as most real databases have it: what depends on the order of text
	# by accident shows here.
	initdb --pgdata="$PGDATA" --username="$POSTGRES_USER" --pwfile="$passwords" --no-sync \
		--auth-local=trust --auth-host=scram-sha-256 --encoding=UTF8 \
		--locale=C.UTF-8 --locale-provider=icu --icu-locale=en-US >/dev/null
	rm -f "$passwords"
	echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
	echo "listen_addresses = '*'" >>"$PGDATA/postgresql.conf"

	# Nobody can connect over the network before the database exists.
	pg_ctl start -D "$PGDATA" -w -o "-c fsync=off -c listen_addresses=''"
	if [ "$POSTGRES_DB" != postgres ]; then
		query -d postgres -v name="$POSTGRES_DB" <<-'SQL'
			CREATE DATABASE :"name";
		SQL
	fi
	run_init_scripts
	pg_ctl stop -D "$PGDATA" -w -m fast
}

[ -s "$PGDATA/PG_VERSION" ] || initialize
exec "$@"
