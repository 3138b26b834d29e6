//go:build unix

package main_test

import (
	"context"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter/migrations"
)

func TestDoctorCitusPlainTable(t *testing.T) {
	t.Parallel()
	admin := onCitus(t, "cli_doctor")
	nothingFound(t, admin, "--schema", "cli_doctor") // plain tables work like those of any server
	execute(t, admin, "SELECT create_distributed_table('cli_doctor.limiter_token_buckets', 'key')")
	others := migrations.Tables()[1:]
	if bad := problems(t, admin, "--schema", "cli_doctor"); len(bad) != len(others) || bad[0].Found != "not distributed, but another table is" {
		t.Errorf("%+v", bad)
	}
	for _, table := range others {
		execute(t, admin, "SELECT create_distributed_table('cli_doctor."+table.Name+"', 'key')")
	}
	nothingFound(t, admin, "--schema", "cli_doctor")
	succeeds(t, admin, "block", "login", "alice", "--for", "1h", "--capacity", "5", "--interval", "1m", "--schema", "cli_doctor")
	succeeds(t, admin, "sweep", "--schema", "cli_doctor")
	contains(t, succeeds(t, admin, "top", "--schema", "cli_doctor").stdout, `"alice"`)
	contains(t, succeeds(t, admin, "top", "--exact", "login", "--schema", "cli_doctor").stdout, "1 row read", `"alice"`)
	position := decode[swept](t, succeeds(t, admin, "sweep", "--from", "6c."+strings.Repeat(",0", len(others)), "--for", "1ns", "-o", "json", "--schema", "cli_doctor")).Position
	contains(t, succeeds(t, admin, "sweep", "--from", position, "--schema", "cli_doctor").stdout, "no other row has expired")
	succeeds(t, admin, "reset", "login", "alice", "--schema", "cli_doctor")
}

func TestDoctorCitusOtherColumn(t *testing.T) {
	t.Parallel()
	admin := onCitus(t, "cli_distributed")
	execute(t, admin,
		"SELECT create_distributed_table('cli_distributed.limiter_token_buckets', 'limiter')",
		"SELECT create_reference_table('cli_distributed.limiter_fixed_windows')")
	for _, table := range migrations.Tables()[2:] {
		execute(t, admin, "SELECT create_distributed_table('cli_distributed."+table.Name+"', 'key')")
	}
	bad := problems(t, admin, "--schema", "cli_distributed")
	if len(bad) != 2 || bad[0].Found != "distributed by limiter" || bad[1].Found != "a reference table" {
		t.Errorf("%+v", bad)
	}
	for _, f := range bad { // the advice is SQL up to the page that it names
		advice, _, _ := strings.Cut(f.Advice, ": see")
		undistribute, distribute, _ := strings.Cut(advice, ", then ")
		execute(t, admin, undistribute, distribute)
	}
	nothingFound(t, admin, "--schema", "cli_distributed")
}

func TestDoctorCitusWorker(t *testing.T) {
	t.Parallel()
	admin := onCitus(t, "cli_worker")
	for _, table := range migrations.Tables() {
		execute(t, admin, "SELECT create_distributed_table('cli_worker."+table.Name+"', 'key')")
	}
	execute(t, admin, "SELECT create_reference_table('cli_worker.limiter_overrides')")
	worker, err := url.Parse(admin)
	must(t, err)
	conn, err := pgx.Connect(t.Context(), admin)
	must(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	err = conn.QueryRow(t.Context(), "SELECT node_name || ':' || node_port FROM citus_get_active_worker_nodes() LIMIT 1").Scan(&worker.Host)
	must(t, err)
	nothingFound(t, worker.String(), "--schema", "cli_worker")
}

// onCitus makes the tables in a schema on the cluster whose coordinator LIMITER_TEST_CITUS_DSN names,
// as a superuser.
func onCitus(t *testing.T, schema string) (admin string) {
	t.Helper()
	admin = os.Getenv("LIMITER_TEST_CITUS_DSN")
	if admin == "" {
		t.Skip("LIMITER_TEST_CITUS_DSN is not set")
	}
	execute(t, admin, "DROP SCHEMA IF EXISTS "+schema+" CASCADE", "CREATE SCHEMA "+schema)
	t.Cleanup(func() { execute(t, admin, "DROP SCHEMA "+schema+" CASCADE") })
	succeeds(t, admin, "migrate", "up", "--schema", schema)
	return admin
}

// Plain tables on a coordinator work with a store without WithCitus. The test makes the catalogs of Citus
// that the doctor reads, so it needs no cluster.
func TestDoctorPlainCitus(t *testing.T) {
	t.Parallel()
	db := migratedPostgres(t)
	db.exec(t, "SET allow_system_table_mods = on",
		`CREATE TABLE pg_catalog.pg_dist_partition (logicalrelid regclass, partmethod "char", partkey text, repmodel "char")`,
		"CREATE TABLE pg_catalog.pg_dist_local_group (groupid int)",
		"CREATE FUNCTION pg_catalog.column_to_column_name(regclass, text) RETURNS text LANGUAGE sql AS 'SELECT $2'")
	nothingFound(t, db.url)
	contains(t, succeeds(t, db.url, "doctor").stdout, "Citus table limiter_token_buckets", "not distributed; the store of an application works without the option for Citus",
		"storage of limiter_token_buckets")
}
