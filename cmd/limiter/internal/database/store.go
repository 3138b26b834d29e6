package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/postgres"
	"github.com/sqlimit/limiter/sqlite"
)

// Store is what the commands need of a store.
type Store interface {
	limiter.Store
	Sweep(ctx context.Context, limit int64) (int64, error)
	ContinueSweep(position string) error
	Check(ctx context.Context) error
}

// Store returns a store on the database. It works on tables that Citus distributes, and on others.
func (db *DB) Store(ctx context.Context) (Store, error) {
	if db.file != nil {
		return db.file, nil
	}
	opts, err := db.storeOptions(ctx)
	if err != nil {
		return nil, err
	}
	return postgres.New(db.pool, opts...)
}

// SweepProgress returns how far the Sweep of a store has come.
func SweepProgress(store Store) Progress {
	switch s := store.(type) {
	case *postgres.Store:
		return Progress(s.SweepProgress())
	case *sqlite.Store:
		return Progress(s.SweepProgress())
	}
	return Progress{}
}

// SweepsPages reports whether a Sweep goes by pages, and knows how many there are.
func (db *DB) SweepsPages(ctx context.Context) bool {
	if db.Dialect == migrations.SQLite {
		return false
	}
	distributed, err := db.distributed(ctx)
	return err == nil && len(distributed) == 0
}

// storeOptions returns the options of a store in PostgreSQL.
func (db *DB) storeOptions(ctx context.Context) ([]postgres.Option, error) {
	opts := []postgres.Option{postgres.WithSchema(db.Schema)}
	distributed, err := db.distributed(ctx)
	if len(distributed) > 0 {
		opts = append(opts, postgres.WithCitus())
	}
	return opts, err
}

// hasCitus reports whether the database has the extension.
func (db *DB) hasCitus(ctx context.Context) (has bool, err error) {
	err = db.pool.QueryRow(ctx, "SELECT pg_catalog.to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL").Scan(&has)
	return has, err
}

// isCitusWorker reports whether the server is a worker of a Citus cluster.
func (db *DB) isCitusWorker(ctx context.Context) (is bool, err error) {
	if has, err := db.hasCitus(ctx); err != nil || !has {
		return false, err
	}
	err = db.pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_catalog.pg_dist_local_group WHERE groupid <> 0)").Scan(&is)
	return is, err
}

// distributed returns the tables that Citus distributes, in PostgreSQL.
func (db *DB) distributed(ctx context.Context) ([]Kind, error) {
	if has, err := db.hasCitus(ctx); err != nil || !has {
		return nil, err
	}
	var found []Kind
	for _, k := range Kinds() {
		var is bool
		err := db.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_catalog.pg_dist_partition
			WHERE logicalrelid = pg_catalog.to_regclass($1::text) AND partmethod = 'h')`, db.text("@"+k.Table())).Scan(&is)
		if err != nil {
			return nil, err
		}
		if is {
			found = append(found, k)
		}
	}
	return found, nil
}

// Migrations are the options of package migrations for the database.
func (db *DB) Migrations() []migrations.Option {
	if db.Dialect == migrations.Postgres {
		return []migrations.Option{migrations.WithSchema(db.Schema)}
	}
	return nil
}

// Policies returns one row of the limiter for each kind of policy. Its policy stands for that of other
// keys.
func (db *DB) Policies(ctx context.Context, name string) ([]Row, error) {
	var found []Row
	for _, k := range Kinds() {
		rows, err := db.query(ctx, k, "SELECT "+k.columns()+", "+db.now()+" FROM @"+k.Table()+
			" WHERE limiter = $1 ORDER BY key LIMIT 1", name)
		if err != nil {
			return nil, err
		}
		found = append(found, rows...)
	}
	return found, nil
}

// rates drops the rows of requests in flight, which are those of another limiter of the same name.
func rates(rows []Row) []Row {
	return slices.DeleteFunc(rows, func(r Row) bool { return r.Kind == KindOf(limiter.InFlight{}) })
}

// peeker looks at the state of keys.
type peeker interface {
	Peek(ctx context.Context, key string) (limiter.Result, error)
}

func newPeeker(store limiter.Store, p limiter.Policy) (peeker, error) {
	if p, ok := p.(limiter.InFlight); ok {
		return limiter.NewConcurrency(store, "row", p)
	}
	return limiter.New(store, "row", p)
}

// checkLimit returns an error if the row's limiter cannot have this limit.
func (r Row) checkLimit(limit int64) (err error) {
	if p, ok := r.Policy().(limiter.InFlight); ok {
		p.Limit = limit
		_, err = newPeeker(frozen{}, p)
	}
	return err
}

// CheckPolicy returns an error that matches [limiter.ErrInvalid] if no limiter can have the name or
// the policy.
func CheckPolicy(name string, p limiter.Policy) error {
	_, err := limiter.New(frozen{}, name, p)
	return err
}

// CheckName returns an error that matches [limiter.ErrInvalid] if no limiter can have the name.
func CheckName(name string) error { return CheckPolicy(name, limiter.PerMinute(1)) }

// Reset makes a key unused. It reports whether the key had a row.
func (db *DB) Reset(ctx context.Context, name string, key []byte) (bool, error) {
	rows, err := db.Find(ctx, name, key)
	if err != nil {
		return false, err
	}
	for _, r := range rows {
		if err := db.do(ctx, limiter.Op{Kind: limiter.OpReset, Name: name, Key: string(key), Policy: r.Policy()}); err != nil {
			return false, err
		}
	}
	return len(rows) > 0, nil
}

// do carries out an operation on a key.
func (db *DB) do(ctx context.Context, op limiter.Op) error {
	store, err := db.Store(ctx)
	if err == nil {
		_, err = store.Do(ctx, op)
	}
	return db.Explain(err)
}

// Block refuses all requests of a key for ns nanoseconds. If p is nil, rows of the limiter tell the policy;
// without a row, or if a calendar wrote it, the error matches [limiter.ErrInvalid]. If p is a calendar
// without a limit, the rows tell that.
func (db *DB) Block(ctx context.Context, name string, key []byte, ns int64, p limiter.Policy) error {
	rows, err := db.Policies(ctx, name)
	if err != nil {
		return err
	}
	var policies []limiter.Policy
	if p == nil {
		policies, err = db.policiesToBlock(ctx, name, key, rows)
	} else if p, err = db.policyToBlock(ctx, name, key, rates(rows), p); err == nil {
		policies = append(policies, p)
	}
	if err != nil {
		return err
	}
	for _, p := range policies {
		if err := db.do(ctx, limiter.Op{Kind: limiter.OpBlock, Name: name, Key: string(key), Policy: p, Cost: ns}); err != nil {
			return err
		}
	}
	return nil
}

// policiesToBlock returns one policy of each kind that the limiter has rows of: that of the key's own row,
// or else that of another key. It returns all kinds, because the key's row may be of a former policy.
func (db *DB) policiesToBlock(ctx context.Context, name string, key []byte, rows []Row) (policies []limiter.Policy, err error) {
	limits := rates(rows)
	if len(limits) == 0 && len(rows) > 0 {
		return nil, fmt.Errorf("%w: limiter %q limits requests in flight, which cannot be blocked; block the key of a rate limit", limiter.ErrInvalid, name)
	}
	if len(limits) == 0 {
		known, err := db.Known(ctx, name)
		if err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%w: limiter %q has %s; correct the name, or pass --capacity and --interval, or --limit and --window", limiter.ErrInvalid, name, known)
	}
	own, err := db.Find(ctx, name, key)
	if err != nil {
		return nil, err
	}
	for _, r := range limits {
		if i := slices.IndexFunc(own, func(o Row) bool { return o.Kind == r.Kind }); i >= 0 {
			r = own[i]
		}
		if r.calendar() {
			return nil, fmt.Errorf("%w: the quota of limiter %q may follow a calendar, which its rows do not tell; pass --period, and --location and --start-day if its policy has them, or else --limit and --window",
				limiter.ErrInvalid, name)
		}
		policies = append(policies, r.Policy())
	}
	return policies, nil
}

// policyToBlock returns p, with the limit of the rows if it is a calendar without one. It fails if the limiter has
// rows, and none of the kind of p.
func (db *DB) policyToBlock(ctx context.Context, name string, key []byte, rows []Row, p limiter.Policy) (_ limiter.Policy, err error) {
	if len(rows) > 0 && !slices.ContainsFunc(rows, func(r Row) bool { return r.Kind == KindOf(p) }) {
		return nil, fmt.Errorf("%w: limiter %q has policies of kind %s, and a block by a policy of kind %s would refuse no request; pass the limiter's own policy",
			limiter.ErrInvalid, name, rows[0].Kind, KindOf(p))
	}
	if w, ok := p.(limiter.CalendarWindow); ok && w.Limit == 0 {
		w.Limit, err = db.limitOf(ctx, name, key, KindOf(p))
		return w, err
	}
	return p, nil
}

// calendar reports whether a calendar may have written the row. Then its window starts between multiples of
// its length, or it has no start, because it was reset, and is as long as a day of a calendar.
func (r Row) calendar() bool {
	const shortestDay = 21 * time.Hour
	return r.offset() != 0 || r.Kind == KindOf(limiter.CalendarWindow{}) && r.State.At == 0 && r.State.Period >= int64(shortestDay)
}

// limitOf returns the limit of a key's row, or of another key of the limiter.
func (db *DB) limitOf(ctx context.Context, name string, key []byte, kind Kind) (int64, error) {
	rows, err := db.Find(ctx, name, key)
	others, err2 := db.Policies(ctx, name)
	if err := errors.Join(err, err2); err != nil {
		return 0, err
	}
	for _, r := range append(rows, others...) {
		if r.Kind == kind {
			return r.State.Limit, nil
		}
	}
	return 0, fmt.Errorf("%w: no key of limiter %q has a row that tells the limit; pass --limit", limiter.ErrInvalid, name)
}

// Known says why a key may have no row.
type Known struct {
	// Limiters are the first limiters that have rows. It is empty if the limiter of the key has rows.
	Limiters []string

	limiter string
	other   bool // the limiter has other keys
	more    bool // there are more limiters
}

// String returns the cause for people. It begins with "no row".
func (k Known) String() string {
	switch {
	case k.other:
		return fmt.Sprintf("no row: the key is unused or mistyped; limiter %s has other keys", k.limiter)
	case len(k.Limiters) == 0:
		return "no row; no limiter has any rows"
	case k.more:
		return fmt.Sprintf("no row; known limiters: %s, and more", strings.Join(k.Limiters, ", "))
	}
	return fmt.Sprintf("no row; known limiters: %s", strings.Join(k.Limiters, ", "))
}

// maxKnown is how many limiters a message names at most.
const maxKnown = 20

// Known finds out why a key of a limiter has no row: the name of the limiter may be mistyped.
func (db *DB) Known(ctx context.Context, name string) (Known, error) {
	rows, err := db.Policies(ctx, name)
	if err != nil || len(rows) > 0 {
		return Known{limiter: name, other: true}, err
	}
	names, err := db.Limiters(ctx, maxKnown+1)
	return Known{Limiters: names[:min(len(names), maxKnown)], more: len(names) > maxKnown}, err
}

// MaxLimiters is how many limiters the commands look at.
const MaxLimiters = 1000

// Limiters returns the names of at most limit limiters that have state, in order. It reads one row for
// each.
func (db *DB) Limiters(ctx context.Context, limit int) ([]string, error) {
	var names, firsts []string
	for _, k := range Kinds() { // each min() is one index lookup, however many keys a limiter has
		firsts = append(firsts, "SELECT min(limiter) AS name FROM @"+k.Table()+" WHERE limiter > $1")
	}
	statement := db.text("SELECT min(name) FROM (" + strings.Join(firsts, " UNION ALL ") + ") AS tables")
	for after := ""; len(names) < limit; {
		var next sql.NullString
		err := db.SQL.QueryRowContext(ctx, statement, after).Scan(&next)
		if err != nil {
			return nil, db.Explain(err)
		}
		if !next.Valid {
			break
		}
		names, after = append(names, next.String), next.String
	}
	return names, nil
}
