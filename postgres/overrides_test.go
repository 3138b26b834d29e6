package postgres_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/postgres"
)

// override sets an override of a bucket for the limiter "test". expires is SQL, in ns since 1970.
func (d *database) override(t *testing.T, schema, key string, capacity int64, expires string) {
	t.Helper()
	d.exec(t, fmt.Sprintf(`INSERT INTO %s.limiter_overrides (limiter, key, kind, capacity, refill, period, expires_at)
		VALUES ('test', '%s', 'bucket', %d, 1, 3600000000000, %s)`, schema, key, capacity, expires))
}

// wantOverrides fails the test unless the store has these overrides of the limiter "test".
func wantOverrides(t *testing.T, store *postgres.Store, keys ...string) {
	t.Helper()
	list, err := store.Overrides(bounded(t), "test", 10)
	if err != nil || len(list) != len(keys) {
		t.Errorf("Overrides = %+v, %v; want %q", list, err, keys)
		return
	}
	for i, o := range list {
		if o.Key != keys[i] || o.Policy != limiter.Policy(slow(int64(i+1))) {
			t.Errorf("override %d is %+v, want the key %q", i, o, keys[i])
		}
	}
}

func TestOverrides(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		d.override(t, schema, `\xff00`, 2, "NULL")
		d.override(t, schema, "a", 1, "NULL")
		for _, h := range handles {
			db := h.open(t, d.dsn)
			for _, opts := range [][]postgres.Option{nil, {postgres.WithCitus()}} {
				wantOverrides(t, storeOn(t, db, schema, opts...), "a", "\xff\x00")
			}
		}
	})
}

func TestErrorsOfOverrides(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		d.override(t, schema, secret, 1, "NULL")
		name, dsn := d.role(t)
		d.exec(t, "GRANT USAGE ON SCHEMA "+schema+" TO "+name)
		app := storeOn(t, pool(t, dsn, few(1)), schema)
		_, err := app.Overrides(t.Context(), "test", 0)
		wantError(t, err, limiter.ErrInvalid)
		_, err = app.Overrides(t.Context(), "te\x00st", 1)
		wantError(t, err, limiter.ErrInvalid)
		_, err = app.Overrides(t.Context(), "test", 10)
		wantError(t, err, limiter.ErrMisconfigured)
		wantAdvice(t, err, fmt.Sprintf(`GRANT SELECT ON %q.limiter_overrides`, schema))
		d.exec(t, "GRANT SELECT ON "+schema+".limiter_overrides TO "+name)
		wantOverrides(t, app, secret)

		d.exec(t, "ALTER TABLE "+schema+".limiter_overrides DROP CONSTRAINT limiter_overrides_check")
		d.exec(t, "UPDATE "+schema+".limiter_overrides SET kind = 'later'")
		_, err = app.Overrides(t.Context(), "test", 10)
		wantError(t, err, limiter.ErrMisconfigured)
		wantAdvice(t, err, `"later"`)

		d.exec(t, "DROP TABLE "+schema+".limiter_overrides")
		_, err = app.Overrides(t.Context(), "test", 10)
		wantError(t, err, limiter.ErrMisconfigured)
		wantAdvice(t, err, "migrations.Up", schema)

		_, err = storeOn(t, pool(t, nowhere, nil), schema).Overrides(t.Context(), "test", 1)
		wantError(t, err, limiter.ErrNotApplied)
	})
}

// Overrides of thousands of keys must not cost more than a read by the primary key.
func TestOverridesByPrimaryKey(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		d.exec(t, fmt.Sprintf(`INSERT INTO %s.limiter_overrides (limiter, key, kind, capacity, refill, period)
			SELECT 'l' || i %% 100, int4send(i), 'bucket', 1, 1, 1000000000 FROM generate_series(1, 20000) AS i`, schema))
		d.exec(t, "ANALYZE "+schema+".limiter_overrides")
		list, err := d.store(t, schema, nil).Overrides(t.Context(), "l7", 1000)
		if err != nil || len(list) != 200 {
			t.Errorf("%d overrides, %v; want 200", len(list), err)
		}
		text := strings.NewReplacer("$1", "'l7'", "$2", "1000").Replace(postgres.Statements(schema, false)["overrides"])
		if plan := query[string](t, d, "EXPLAIN (FORMAT JSON) "+text); !strings.Contains(plan, "limiter_overrides_pkey") {
			t.Errorf("the plan does not use the primary key:\n%s", plan)
		}
	})
}
