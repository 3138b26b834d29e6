package database

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/overrides"
)

// Override is a row of limiter_overrides.
type Override struct {
	Limiter   string
	Key       []byte         // as stored
	Policy    limiter.Policy // nil if Limit is set
	Limit     int64          // replaces the limit alone; 0 for Policy
	Note      string
	ExpiresAt time.Time // the zero time means never
}

// SetOverride writes an override. It replaces an earlier override of the key. The error matches
// [limiter.ErrInvalid] if all keys of the limiter have another kind of policy: all requests of this
// key would then fail. The check is left out if the role may not read these tables.
func (db *DB) SetOverride(ctx context.Context, o Override) error {
	policy, columns := o.Policy, overrides.ColumnsOf(o.Policy)
	if o.Limit != 0 {
		window := overrides.Columns{Kind: "window", Capacity: o.Limit, Period: int64(time.Hour)} // all windows have the same limits
		var err error
		if policy, err = window.Policy(); err != nil {
			return err
		}
		columns = overrides.Columns{Kind: overrides.KindLimit, Capacity: o.Limit}
	}
	if err := CheckPolicy(o.Limiter, policy); err != nil {
		return err
	}
	rows, err := db.Policies(ctx, o.Limiter)
	if err != nil && !isDenied(err) { // operators may have privileges on limiter_overrides alone
		return err
	}
	kind := KindOf(policy)
	fits := func(of Kind) bool {
		if o.Limit != 0 { // any kind but a bucket has a limit alone
			return of != KindOf(limiter.PerMinute(1))
		}
		return of == kind
	}
	if o.Limit == 0 {
		rows = rates(rows)
	}
	if len(rows) == 1 && !fits(rows[0].Kind) {
		return fmt.Errorf("%w: limiter %q has policies of kind %s, and the override is of kind %s; requests of its key would fail",
			limiter.ErrInvalid, o.Limiter, rows[0].Kind, kind)
	}
	if o.Limit != 0 && len(rows) == 1 {
		if err := rows[0].checkLimit(o.Limit); err != nil {
			return err
		}
	}
	var expires sql.NullInt64
	refill := sql.NullInt64{Int64: columns.Refill, Valid: columns.Refill != 0}
	period := sql.NullInt64{Int64: columns.Period, Valid: columns.Period != 0}
	if !o.ExpiresAt.IsZero() {
		expires = sql.NullInt64{Int64: o.ExpiresAt.UnixNano(), Valid: true}
	}
	note := sql.NullString{String: o.Note, Valid: o.Note != ""}
	_, err = db.SQL.ExecContext(ctx, db.text(`INSERT INTO @limiter_overrides
			(limiter, key, kind, capacity, refill, period, note, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
		ON CONFLICT (limiter, key) DO UPDATE SET kind = excluded.kind, capacity = excluded.capacity,
			refill = excluded.refill, period = excluded.period, note = excluded.note, expires_at = excluded.expires_at`),
		o.Limiter, o.Key, columns.Kind, columns.Capacity, refill, period, note, expires)
	return db.Explain(err)
}

// RemoveOverride deletes the override of a key and reports whether there was one.
func (db *DB) RemoveOverride(ctx context.Context, name string, key []byte) (bool, error) {
	done, err := db.SQL.ExecContext(ctx, db.text("DELETE FROM @limiter_overrides WHERE limiter = $1 AND key = $2"), name, key)
	if err != nil {
		return false, db.Explain(err)
	}
	n, err := done.RowsAffected()
	return n > 0, err
}

// CountOverrides returns how many overrides there are.
func (db *DB) CountOverrides(ctx context.Context) (n int64, err error) {
	err = db.SQL.QueryRowContext(ctx, db.text("SELECT count(*) FROM @limiter_overrides")).Scan(&n)
	return n, db.Explain(err)
}

// Overrides returns at most limit overrides, sorted by limiter and key, including expired ones. An
// empty name means all limiters.
func (db *DB) Overrides(ctx context.Context, name string, limit int) ([]Override, error) {
	rows, err := db.SQL.QueryContext(ctx, db.text(`SELECT limiter, hex(key), kind, capacity, coalesce(refill, 0), coalesce(period, 0),
			coalesce(note, ''), expires_at
		FROM @limiter_overrides WHERE $1 = '' OR limiter = $1 ORDER BY limiter, key LIMIT $2`), name, int64(limit))
	if err != nil {
		return nil, db.Explain(err)
	}
	defer rows.Close()
	var list []Override
	for rows.Next() {
		var o Override
		var c overrides.Columns
		var expires sql.NullInt64
		if err := rows.Scan(&o.Limiter, hexKey{&o.Key}, &c.Kind, &c.Capacity, &c.Refill, &c.Period, &o.Note, &expires); err != nil {
			return nil, err
		}
		if o.Policy, err = c.Policy(); err != nil {
			return nil, err
		}
		if c.Kind == overrides.KindLimit {
			o.Limit = c.Capacity
		}
		if expires.Valid {
			o.ExpiresAt = time.Unix(0, expires.Int64).UTC()
		}
		list = append(list, o)
	}
	return list, db.Explain(rows.Err())
}
