package database

import (
	"context"
	"fmt"
)

// checkCitus checks how Citus distributes the tables, if the server has it. It reports whether Citus
// stores the rows of one of them. Tables that Citus does not distribute work like those of any server,
// but one store takes all tables as distributed, or none.
func (db *DB) checkCitus(ctx context.Context, r *report) (distributed bool, err error) {
	has, err := db.hasCitus(ctx)
	if err != nil || !has {
		return false, err
	}
	const plain, byKey = "not distributed", "distributed by key"
	states := map[Kind]string{}
	for _, k := range Kinds() {
		var found string
		if err := db.pool.QueryRow(ctx, `SELECT coalesce((SELECT CASE
				WHEN partmethod = 'h' THEN 'distributed by ' || pg_catalog.column_to_column_name(logicalrelid, partkey)
				WHEN repmodel = 't' THEN 'a reference table'
			END FROM pg_catalog.pg_dist_partition WHERE logicalrelid = pg_catalog.to_regclass($1::text)), $2)`,
			db.text("@"+k.Table()), plain).Scan(&found); err != nil {
			return false, err
		}
		states[k] = found
		distributed = distributed || found != plain
	}
	for _, k := range Kinds() {
		check, found := "Citus table "+k.Table(), states[k]
		distribute := fmt.Sprintf("SELECT create_distributed_table('%s.%s', 'key'): see docs/citus.md", db.Schema, k.Table())
		switch found {
		case byKey:
			r.ok(check, "%s; the store of an application needs the option for Citus", found)
		case plain:
			if !distributed {
				r.ok(check, "%s; the store of an application works without the option for Citus", found)
				continue
			}
			r.bad(check, distribute, "%s, but another table is", found)
		default:
			r.bad(check, fmt.Sprintf("SELECT undistribute_table('%s.%s'), then ", db.Schema, k.Table())+distribute, "%s", found)
		}
	}
	return distributed, nil
}
