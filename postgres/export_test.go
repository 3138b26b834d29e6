package postgres

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/tables"
)

// Statements returns the rendered statements of a store by their names, so that
// tests can prepare and explain them.
func Statements(schema string, asyncCommit bool) map[string]string {
	return statements(&options{schema: schema, rendering: rendering{asyncCommit: asyncCommit, boundsWaits: true}})
}

// CitusStatements is Statements of a store with WithCitus.
func CitusStatements(schema string) map[string]string {
	o := &options{schema: schema, rendering: rendering{citus: true}}
	texts := statements(o)
	texts["distributed"] = o.text("distributed_citus")
	return texts
}

func statements(o *options) map[string]string {
	texts := map[string]string{"check": o.checkText(), "version": o.inSchema(o.text("version")), "overrides": o.inSchema(o.text("overrides"))}
	all := func(tables ...*table) string { return o.inSchema(o.allText(tables, noRow)) }
	var both, most []*table
	for _, d := range tables.All {
		t := &table{Table: d, sql: o.onTable(d, false)}
		v := reflect.ValueOf(t.sql)
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; v.Field(i).Len() > 0 && v.Field(i).Kind() == reflect.String {
				texts[d.Prefix+strings.ToUpper(name[:1])+name[1:]] = v.Field(i).String()
			}
		}
		if t.sql.all != nil && !o.citus {
			texts["all"+strings.ToUpper(d.Prefix[:1])+d.Prefix[1:]] = all(t)
			both, most = append(both, t, t), append(most, t, t, t, t)
		}
	}
	windows := tables.All[limiter.KindWindow-1]
	t := &table{Table: windows, sql: o.onTable(windows, true), calendar: true}
	texts["calendarTake"] = t.sql.take
	if !o.citus {
		texts["calendarTakes"], texts["calendarCount"] = t.sql.takes, t.sql.count
		texts["allCalendar"] = all(t, t)
		texts["allBoth"] = all(both...)
		texts["allMost"] = all(most...)
	}
	return texts
}

// NextRange is [nextRange].
var NextRange = nextRange

// Files returns the texts of the embedded files.
func Files() map[string]string {
	texts := map[string]string{}
	entries, _ := files.ReadDir("sql")
	for _, e := range entries {
		texts[e.Name()] = readFile(strings.TrimSuffix(e.Name(), ".sql"))
	}
	return texts
}

// Release gives a connection back to its pool.
func Release(conn *pgxpool.Conn) { new(Store).release(conn) }

// SchemaVersion is the version that Check wants.
const SchemaVersion = schemaVersion

// RowLocked is a Store that decides takes under the row's lock, as those that lost a race.
type RowLocked struct{ *Store }

// Do is [Store.Do].
func (s RowLocked) Do(ctx context.Context, op limiter.Op) (limiter.State, error) {
	if op.Kind == limiter.OpTake || op.Kind == limiter.OpAcquire {
		states, err := s.Take(ctx, op)
		return states[0], err
	}
	states, err := s.by(ctx, func(db DB, t *table, calls []*batch.Call) error {
		return s.carryOut(ctx, db, t, &batch.Group{Calls: calls})
	}, op)
	return states[0], err
}

// Take carries out takes of a key together.
func (s RowLocked) Take(ctx context.Context, takes ...limiter.Op) ([]limiter.State, error) {
	return s.by(ctx, func(db DB, t *table, calls []*batch.Call) error { return s.settleLocked(ctx, db, t, calls) }, takes...)
}

// Settled is a Store that decides takes and looks by reading the row and replacing it, as it decides
// those that wait for one key together.
type Settled struct{ *Store }

// Do is [Store.Do].
func (s Settled) Do(ctx context.Context, op limiter.Op) (limiter.State, error) {
	if batch.GivesBack(&op) {
		return s.Store.Do(ctx, op)
	}
	states, err := s.by(ctx, func(db DB, t *table, calls []*batch.Call) error { return s.settle(ctx, db, t, calls) }, op)
	return states[0], err
}

// by carries out operations of a key by send, on a connection.
func (s *Store) by(ctx context.Context, send func(DB, *table, []*batch.Call) error, ops ...limiter.Op) ([]limiter.State, error) {
	states, calls := make([]limiter.State, len(ops)), make([]*batch.Call, len(ops))
	var err error
	for i, op := range ops {
		calls[i] = batch.NewCall(op)
		err = errors.Join(err, op.Check())
	}
	if err == nil {
		err = s.run(ctx, ops[0].Kind != limiter.OpLook, func(db DB) error { return send(db, s.tableOf(ops[0].Policy), calls) })
	}
	for i, c := range calls {
		states[i] = c.State()
	}
	if err != nil {
		return states, fmt.Errorf("postgres: %w", err)
	}
	return states, nil
}

// SettledAll is a Store that decides over several limits in a transaction.
type SettledAll struct{ *Store }

// DoAll is [Store.DoAll].
func (s SettledAll) DoAll(ctx context.Context, ops []limiter.Op) ([]limiter.State, error) {
	d, err := s.newAll(ops)
	if err != nil {
		return nil, err
	}
	for d.locked = 0; d.locked != noRow && err == nil; { // the first row may wait for its lock
		err = s.run(ctx, write, func(db DB) error {
			d.first, d.locked = d.locked, noRow
			return d.settle(ctx, db, false)
		})
	}
	return d.states, err
}

// Joining returns [allDecision.join], which returns the first row and the queues that it joins.
func Joining() func(locked int) []int {
	d := &allDecision{first: noRow}
	return func(locked int) []int {
		d.locked = locked
		d.join()
		return append([]int{d.first}, d.queued...)
	}
}

// GiveBackAll carries out refunds of a key in one batch, as the queue does.
func GiveBackAll(ctx context.Context, s *Store, refunds []limiter.Op) error {
	_, err := s.by(ctx, func(db DB, t *table, calls []*batch.Call) error {
		_, err := s.giveBack(ctx, db, t, calls)
		return err
	}, refunds...)
	return err
}

// TakeTogether carries out takes of a key together, and waits for the row until ctx ends.
func TakeTogether(ctx context.Context, s *Store, equal bool, takes ...limiter.Op) ([]limiter.State, error) {
	return s.by(ctx, func(db DB, t *table, calls []*batch.Call) error {
		return s.carryOut(ctx, db, t, &batch.Group{Equal: equal, Calls: calls})
	}, takes...)
}

// TakeMerged carries out takes of as many keys by one statement.
func TakeMerged(ctx context.Context, s *Store, takes ...limiter.Op) ([]limiter.State, error) {
	return s.by(ctx, func(db DB, t *table, calls []*batch.Call) error {
		var groups []*batch.Group
		for _, c := range calls {
			groups = append(groups, &batch.Group{Calls: []*batch.Call{c}})
		}
		_, err := s.takeMerged(ctx, db, t, groups)
		return err
	}, takes...)
}

// PingAfterFreezeBy is PingAfterFreeze with another clock.
func PingAfterFreezeBy(config *pgxpool.Config, now func() time.Time) { pingAfterFreeze(config, now) }

// PingTimeout is the PingTimeout that PingAfterFreeze sets.
const PingTimeout = pingTimeout

// PoolConfig returns what a store from Open makes its pool from.
func PoolConfig(s *Store) *pgxpool.Config { return s.config }

// SetClock replaces the process's clock, which says in which period of a calendar the store probably is.
func (s *Store) SetClock(now func() time.Time) { s.clock = now }
