package database

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/postgres"
)

func (db *DB) doctorPostgres(ctx context.Context, r *report) ([]Finding, error) {
	writable, err := db.checkServer(ctx, r)
	if err != nil {
		return r.findings, err
	}
	db.checkPooler(ctx, r)
	db.checkClock(ctx, r)
	complete := db.checkTables(ctx, r)
	switch worker, err := db.isCitusWorker(ctx); {
	case err != nil:
		r.failed("migrations", err)
	case worker:
		r.ok("migrations", "not known, because this is a worker of Citus; the coordinator records them")
	default:
		r.migrations(ctx, db, complete)
	}
	if !complete {
		return r.findings, nil // the other checks would fail for the same reason
	}
	if writable {
		db.checkDecisions(ctx, r)
	}
	distributed, err := db.checkCitus(ctx, r)
	if err != nil {
		r.failed("Citus", err)
	}
	for _, k := range Kinds() {
		if !distributed { // the rows and their statistics are then on the workers
			db.checkStorage(ctx, r, k)
			db.checkUpdates(ctx, r, k)
		}
	}
	r.expired(ctx, db)
	return r.findings, nil
}

// checkServer checks the version, and that the server writes.
func (db *DB) checkServer(ctx context.Context, r *report) (writable bool, err error) {
	var number int
	var version, readOnly string
	err = db.pool.QueryRow(ctx, `SELECT pg_catalog.current_setting('server_version_num')::int,
		pg_catalog.current_setting('server_version'), pg_catalog.current_setting('transaction_read_only')`).
		Scan(&number, &version, &readOnly)
	switch {
	case err != nil:
		return false, err
	case number < 150000:
		r.bad("server", "upgrade to PostgreSQL 15 or later", "PostgreSQL %s", version)
	case readOnly == "on":
		r.bad("server", "name the primary in the URL, or all servers and target_session_attrs=read-write", "PostgreSQL %s only reads", version)
	default:
		r.ok("server", "PostgreSQL %s, writable", version)
	}
	return readOnly != "on", nil
}

const (
	// maxSkew is how far the clocks of the server and of this machine may differ.
	maxSkew = 100 * time.Millisecond
	// clockReadings is how often the server's clock is read. The fastest reading is the most exact.
	clockReadings = 5
)

// checkClock compares the server's clock with that of this machine. If they differ, instants that
// applications compute from RetryAfter are wrong, and overrides end at the wrong time.
func (db *DB) checkClock(ctx context.Context, r *report) {
	var skew, margin time.Duration
	for i := range clockReadings {
		began := time.Now()
		var server int64
		if err := db.pool.QueryRow(ctx, "SELECT "+db.now()).Scan(&server); err != nil {
			r.failed("clock", err)
			return
		}
		trip := time.Since(began)
		if i == 0 || trip/2 < margin {
			skew, margin = time.Unix(0, server).Sub(began.Add(trip/2)), trip/2
		}
	}
	text := fmt.Sprintf("the server is %s ahead of this machine, give or take %s", show(skew), show(margin))
	if skew < 0 {
		text = fmt.Sprintf("the server is %s behind this machine, give or take %s", show(-skew), show(margin))
	}
	if skew.Abs()-margin > maxSkew {
		r.bad("clock", "synchronize both clocks, by NTP for example", "%s", text)
		return
	}
	r.ok("clock", "%s", text)
}

func show(d time.Duration) string { return d.Round(100 * time.Microsecond).String() }

// checkTables checks that the tables exist and that the role may use them. It reports whether the
// other checks can read the tables.
func (db *DB) checkTables(ctx context.Context, r *report) bool {
	const overrides, versions = "limiter_overrides", "limiter_goose_version"
	var missing, denied, grants, noSweep, optional []string
	var readsOverrides bool
	var role string
	if err := db.pool.QueryRow(ctx, "SELECT pg_catalog.quote_ident(current_user)").Scan(&role); err != nil {
		r.failed("tables", err)
		return false
	}
	deny := func(name, privileges string) {
		denied = append(denied, name)
		grants = append(grants, fmt.Sprintf("GRANT %s ON %s TO %s", privileges, db.text("@"+name), role))
	}
	var names []string
	for _, k := range Kinds() {
		names = append(names, k.Table())
	}
	for _, name := range append(names, overrides, versions) {
		var exists, sel, ins, upd, del bool
		err := db.pool.QueryRow(ctx, `SELECT c.oid IS NOT NULL,
				coalesce(pg_catalog.has_table_privilege(c.oid, 'SELECT'), false), coalesce(pg_catalog.has_table_privilege(c.oid, 'INSERT'), false),
				coalesce(pg_catalog.has_table_privilege(c.oid, 'UPDATE'), false), coalesce(pg_catalog.has_table_privilege(c.oid, 'DELETE'), false)
			FROM (SELECT 1) AS one LEFT JOIN pg_catalog.pg_class AS c
				ON c.relname = $1 AND c.relnamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = $2)`,
			name, db.Schema).Scan(&exists, &sel, &ins, &upd, &del)
		switch {
		case err != nil:
			r.failed("tables", err)
			return false
		case name == versions && exists && !sel:
			optional = append(optional, name)
		case name == versions:
		case !exists:
			missing = append(missing, name)
		case name == overrides && !sel:
			deny(name, "SELECT")
		case name == overrides:
			readsOverrides = !(ins && upd && del)
		case !(sel && ins && upd):
			deny(name, "SELECT, INSERT, UPDATE")
		case !del:
			noSweep = append(noSweep, name)
		}
	}
	if len(missing) > 0 {
		r.bad("tables", "run limiter migrate up, which creates the tables or says what differs, or pass the --schema that has them", "schema %s lacks %s", db.Schema, strings.Join(missing, ", "))
		return false
	}
	r.ok("tables", "all are in schema %s", db.Schema)
	usage := false
	if err := db.pool.QueryRow(ctx, "SELECT pg_catalog.has_schema_privilege($1, 'USAGE')", db.Schema).Scan(&usage); err != nil {
		r.failed("privileges", err)
		return false
	}
	if !usage {
		denied = append(denied, "schema "+db.Schema)
		grants = append(grants, fmt.Sprintf("GRANT USAGE ON SCHEMA %q TO %s", db.Schema, role))
	}
	if len(denied) > 0 {
		r.bad("privileges", strings.Join(grants, "; "), "the role may not use %s", strings.Join(denied, ", "))
		return false
	}
	text := "the role may decide requests"
	if len(noSweep) > 0 {
		text += "; it may not sweep, which needs DELETE"
	}
	if len(optional) > 0 {
		text += "; it may not read " + strings.Join(optional, ", ")
	}
	r.ok("privileges", "%s", text)
	if readsOverrides {
		r.ok("overrides", "the role may read them; limiter override set and rm need %s", db.text("GRANT SELECT, INSERT, UPDATE, DELETE ON @"+overrides)+" TO the operators' role")
		return true
	}
	r.ok("overrides", "the role may read and write them")
	return true
}

// checkDecisions decides a request of each kind, and rolls that back. It finds why decisions fail
// although tables and privileges exist: a missing column or primary key, a trigger, or a row policy.
func (db *DB) checkDecisions(ctx context.Context, r *report) {
	for _, k := range Kinds() {
		p := tables[k].Policy(limiter.Row{Period: int64(time.Hour), Limit: 1})
		switch err := db.tryDecision(ctx, p); {
		case errors.Is(err, context.DeadlineExceeded):
			r.failed("decisions", err)
			return
		case err != nil:
			advice := restoreAdvice
			switch {
			case isDenied(err): // the privileges were checked, so a row policy denies it
				advice = "create a row-level security policy for the role, or disable row-level security"
			case isShort(err):
				advice = "free what the server lacks"
			}
			r.bad("decisions", advice, "a decision by %s failed: %s", k.Table(), strings.TrimPrefix(Line(err), "postgres: limiter: "))
			return
		}
	}
	r.ok("decisions", "a decision of each kind worked, and was rolled back")
}

// tryDecision decides on a key that nobody else uses, in a transaction that it rolls back.
func (db *DB) tryDecision(ctx context.Context, p limiter.Policy) error {
	opts, err := db.storeOptions(ctx)
	if err != nil {
		return err
	}
	tx, err := db.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	store, err := postgres.New(tx, opts...)
	if err == nil {
		op := limiter.Op{Kind: limiter.OpTake, Name: "limiter-doctor", Key: rand.Text(), Policy: p, Cost: 1}
		if errors.Is(op.Check(), errors.ErrUnsupported) { // requests in flight
			op.Kind, op.ID, op.Hold = limiter.OpAcquire, 1, time.Hour
		}
		_, err = store.Do(ctx, op)
	}
	return err
}

// pageFloor is how many pages the migration gives each table.
const pageFloor = 32

// checkStorage checks the settings of a table, and that it has the pages that make the planner use the
// primary key.
func (db *DB) checkStorage(ctx context.Context, r *report, k Kind) {
	check := "storage of " + k.Table()
	var options string
	var pages int64
	err := db.pool.QueryRow(ctx, `SELECT coalesce(pg_catalog.array_to_string(c.reloptions, ' '), ''), pg_catalog.pg_relation_size(c.oid) / 8192
		FROM pg_catalog.pg_class AS c WHERE c.oid = pg_catalog.to_regclass($1::text)`, db.text("@"+k.Table())).Scan(&options, &pages)
	truncates := !strings.Contains(options, "vacuum_truncate=off") && !strings.Contains(options, "vacuum_truncate=false")
	switch {
	case err != nil:
		r.failed(check, err)
	case !strings.Contains(options, "fillfactor=70") || truncates:
		r.bad(check, db.text("ALTER TABLE @"+k.Table()+" SET (fillfactor = 70, vacuum_truncate = off)"), "the settings are %q", options)
	case pages < pageFloor:
		r.bad(check, `bring back the first 32 pages: see docs/sizing.md, "Keep the first 32 pages of each table"`, "%d pages of 8 kB, and the floor is %d", pages, pageFloor)
	default:
		r.ok(check, "%d pages of 8 kB, fillfactor 70", pages)
	}
}

const (
	minUpdates = 1000   // fewer say nothing about a table
	minHOT     = 0.90   // of all updates; 0.997 is usual
	minDead    = 10_000 // fewer dead rows are no burden
)

// checkUpdates checks how many updates were HOT, and whether VACUUM keeps up.
func (db *DB) checkUpdates(ctx context.Context, r *report, k Kind) {
	var updates, hot, dead, live int64
	err := db.pool.QueryRow(ctx, `SELECT n_tup_upd, n_tup_hot_upd, n_dead_tup, n_live_tup
		FROM pg_catalog.pg_stat_all_tables WHERE relid = pg_catalog.to_regclass($1::text)`, db.text("@"+k.Table())).
		Scan(&updates, &hot, &dead, &live)
	if err != nil {
		r.failed("updates of "+k.Table(), err)
		return
	}
	share := float64(hot) / float64(max(1, updates))
	check := "HOT updates of " + k.Table()
	switch {
	case updates < minUpdates:
		r.ok(check, "too few updates to judge: %d", updates)
	case share < minHOT:
		r.bad(check, "drop indexes other than the primary key, and look for transactions that stay open for long", "%.1f %% of %d updates", 100*share, updates)
	default:
		r.ok(check, "%.1f %% of %d updates", 100*share, updates)
	}
	check = "dead rows of " + k.Table()
	if dead > minDead && dead > live {
		r.bad(check, "run VACUUM, look for transactions that stay open for long, and see that autovacuum runs", "%d dead, %d live", dead, live)
		return
	}
	r.ok(check, "%d dead, %d live", dead, live)
}
