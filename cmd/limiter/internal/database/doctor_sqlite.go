package database

import (
	"context"
	"fmt"
)

// oldestSQLite is the oldest version that the stores support.
var oldestSQLite = [2]int{3, 42}

func (db *DB) doctorSQLite(ctx context.Context, r *report) ([]Finding, error) {
	var version string
	if err := db.SQL.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version); err != nil {
		return r.findings, err
	}
	var v [2]int
	if _, err := fmt.Sscanf(version, "%d.%d", &v[0], &v[1]); err == nil && (v[0] < oldestSQLite[0] || v[0] == oldestSQLite[0] && v[1] < oldestSQLite[1]) {
		r.bad("version", "use a driver with SQLite 3.42 or later", "SQLite %s", version)
	} else {
		r.ok("version", "SQLite %s", version)
	}
	err := db.file.Check(ctx)
	r.migrations(ctx, db, err == nil)
	if err != nil {
		r.bad("tables", "run limiter migrate up, which creates the tables or says what differs; the file and its directory must be writable", "%s", Line(err))
		return r.findings, nil // the other checks would fail for the same reason
	}
	r.ok("tables", "all can be read and written")
	r.expired(ctx, db)
	return r.findings, nil
}
