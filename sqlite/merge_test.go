package sqlite_test

import (
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowtest"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/sqlite"
)

func TestMergedTakesOnAnyRow(t *testing.T) {
	t.Parallel()
	for name, open := range openers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := open(t)
			rowtest.RunMerged(t, store, rows{store}, 40)
			checkTypes(t, store)
		})
	}
}

// opened runs test in a synctest bubble, on a Store on a new file and with the path of the file.
func opened(t *testing.T, test func(t *testing.T, store *sqlite.Store, path string)) {
	t.Helper()
	for name, open := range map[string]func(t *testing.T, path string) *sqlite.Store{
		"file": func(t *testing.T, path string) *sqlite.Store { return openPath(t, path) },
		"own pool": func(t *testing.T, path string) *sqlite.Store {
			return newStore(t, openDB(t, path, "?_busy_timeout=0&_synchronous=OFF&_journal_mode=WAL"))
		},
	} {
		bubble(t, name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "met.db")
			test(t, open(t, path), path)
		})
	}
}

// bubble runs a parallel subtest in a synctest bubble.
func bubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, test)
	})
}

// answer is what a take returned.
type answer struct {
	limiter.State
	err error
}

// ahead is two takes that are sent alone: the first waits for the write lock, and the second for
// the first. Later ones can share a transaction.
var ahead = []limiter.Op{takeOf("ahead", "1", slow, 1), takeOf("ahead", "2", slow, 1)}

// meet makes operations wait behind a writer. Before the writer ends, it calls meanwhile.
func meet(t *testing.T, store *sqlite.Store, meanwhile func(writer *sql.Conn), ops ...limiter.Op) []answer {
	t.Helper()
	conn, unlock := lock(t, store)
	answers := make([]answer, len(ops))
	var all sync.WaitGroup
	for i, op := range ops {
		all.Go(func() { answers[i].State, answers[i].err = store.Do(t.Context(), op) })
		synctest.Wait()
	}
	if meanwhile != nil {
		meanwhile(conn)
	}
	unlock()
	all.Wait()
	return answers
}

var (
	slow     = limiter.TokenBucket{Capacity: 50, Refill: 1, Interval: 24 * time.Hour}
	window   = limiter.FixedWindow{Limit: 50, Window: 24 * time.Hour}
	counting = limiter.FixedWindow{Limit: 50, Window: 24 * time.Hour, CountRejected: true}
)

func takeOf(name, key string, p limiter.Policy, cost int64) limiter.Op {
	return limiter.Op{Kind: limiter.OpTake, Name: name, Key: key, Policy: p, Cost: cost, At: t0.UnixNano(), Timeout: time.Minute}
}

// Takes of a key that meet and all fit are one UPSERT. If they do not all fit, Op.Apply decides
// them one after another.
func TestOperationsThatMeetShareATransaction(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		op      func(i int) limiter.Op
		before  int64 // what is taken of the key "key" before
		ops     int
		granted int
		commits int
		units   int64 // what the row of "key" says of the latest UPSERT
	}{
		{"of many keys", func(i int) limiter.Op { return takeOf("l", fmt.Sprint(i), slow, 1) }, 1, 100, 100, 1, 1},
		{"of one key", func(int) limiter.Op { return takeOf("l", "key", slow, 1) }, 9, 41, 41, 1, 41},
		{"of one key, more than fit", func(int) limiter.Op { return takeOf("l", "key", slow, 1) }, 9, 80, 41, 1, 1},
		{"of one key in a window", func(int) limiter.Op { return takeOf("l", "key", window, 1) }, 9, 41, 41, 1, 41},
		{"of one key in a window, more than fit", func(int) limiter.Op { return takeOf("l", "key", window, 1) }, 9, 80, 41, 1, 1},
		{"of one key that counts refusals", func(int) limiter.Op { return takeOf("l", "key", counting, 1) }, 9, 50, 41, 1, 50},
		{"of one key that counts many refusals", func(int) limiter.Op { return takeOf("l", "key", counting, 1) }, 20, 200, 30, 1, 1},
		{"of many limiters and both kinds", func(i int) limiter.Op {
			return takeOf(fmt.Sprint("l", i%3), fmt.Sprint(i%7), []limiter.Policy{slow, window, slow}[i%3], 1)
		}, 1, 84, 84, 1, 1},
		{"of one key and two costs", func(i int) limiter.Op { return takeOf("l", "key", slow, 1+int64(i%2)) }, 1, 20, 20, 1, 1},
		{"reservations of a key", func(i int) limiter.Op {
			op := takeOf("l", "key", slow, 1)
			op.MaxWait = time.Duration(1+i) * time.Minute
			return op
		}, 20, 200, 30, 1, 1},
		{"of more keys than one transaction takes", func(i int) limiter.Op { return takeOf("l", fmt.Sprint(i), slow, 1) }, 1, 2*sqlite.MergedKeys + 1, 2*sqlite.MergedKeys + 1, 3, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			opened(t, func(t *testing.T, store *sqlite.Store, path string) {
				ops := slices.Clone(ahead)
				for i := range c.ops {
					ops = append(ops, c.op(i))
				}
				// The log begins anew before the first transaction of a Store, and without free pages.
				execute(t, store, "CREATE TABLE room AS SELECT zeroblob(1000000); DROP TABLE room")
				must(t, testenv.ErrorOf(store.Do(t.Context(), takeOf("l", "key", c.op(0).Policy, c.before))))
				before := commits(t, path)
				granted := 0
				for _, a := range meet(t, store, nil, ops...) {
					must(t, a.err)
					if a.Took {
						granted++
					}
				}
				testenv.Equal(t, granted-len(ahead), c.granted, "granted")
				testenv.Equal(t, commits(t, path)-before-len(ahead), c.commits, "transactions")
				units := dump(t, store, `SELECT granted FROM limiter_token_buckets WHERE key = CAST('key' AS BLOB)
					UNION ALL SELECT granted FROM limiter_fixed_windows WHERE key = CAST('key' AS BLOB)`)
				testenv.Equal(t, units, fmt.Sprintln(c.units), "units of the row")
			})
		})
	}
}

// commits counts the transactions in the WAL of a database: a frame that ends one holds the size of
// the database, see https://www.sqlite.org/fileformat2.html#the_write_ahead_log.
func commits(t *testing.T, path string) (n int) {
	t.Helper()
	wal, err := os.ReadFile(path + "-wal")
	must(t, err)
	const header, frame = 32, 24
	page, salts := int(binary.BigEndian.Uint32(wal[8:])), string(wal[16:24])
	for at := header; at+frame+page <= len(wal); at += frame + page {
		if string(wal[at+8:at+16]) != salts {
			break // of a WAL that was begun anew
		}
		if binary.BigEndian.Uint32(wal[at+4:]) != 0 {
			n++
		}
	}
	return n
}

func TestBadRowFailsOnlyItsOwnTakes(t *testing.T) {
	t.Parallel()
	loosen := "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(sql, 'STRICT, ', '') WHERE name = 'limiter_token_buckets'; PRAGMA schema_version = 1000; PRAGMA writable_schema = RESET"
	trigger := "CREATE TRIGGER bad BEFORE INSERT ON limiter_token_buckets WHEN NEW.key = CAST('bad' AS BLOB) BEGIN SELECT RAISE(%s, 'bad'); END"
	for _, c := range []struct {
		name  string
		setup string // before the tables are first used
		fault string // while the takes wait, so that none is failed by its first look
		class error
	}{
		{"that cannot be read", loosen, "INSERT INTO limiter_token_buckets VALUES ('l', CAST('bad' AS BLOB), 1.5, 0, 1, 1, 1)", limiter.ErrMisconfigured},
		{"that cannot be written", "", fmt.Sprintf(trigger, "ABORT"), limiter.ErrInvalid},
		{"for which SQLite ends the transaction", "", fmt.Sprintf(trigger, "ROLLBACK"), limiter.ErrInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			opened(t, func(t *testing.T, store *sqlite.Store, _ string) {
				execute(t, store, c.setup)
				ops := slices.Clone(ahead)
				for i := range 20 {
					ops = append(ops, takeOf("l", fmt.Sprint("a", i), slow, 1), takeOf("l", "shared", slow, 1), takeOf("m", fmt.Sprint(i), slow, 2))
					if i%10 == 0 {
						ops = append(ops, takeOf("l", "bad", slow, 1))
					}
				}
				answers := meet(t, store, func(writer *sql.Conn) {
					must(t, testenv.ErrorOf(writer.ExecContext(t.Context(), c.fault)))
				}, ops...)
				bad := takeOf("l", "bad", slow, 1)
				testenv.ErrorIs(t, testenv.ErrorOf(store.Do(t.Context(), bad)), c.class, "Do on the bad row")
				testenv.ErrorIs(t, testenv.ErrorOf(store.DoAll(t.Context(), []limiter.Op{bad})), c.class, "DoAll on the bad row")
				spent := map[limiter.Op]int64{}
				for i, a := range answers {
					switch op := ops[i]; {
					case op.Key == "bad" && !errors.Is(a.err, c.class):
						t.Errorf("the take of the bad row: %v, want %v", a.err, c.class)
					case op.Key != "bad" && (a.err != nil || !a.Took):
						t.Errorf("take %d of %s: granted %v, %v", i, op.Key, a.Took, a.err)
					case op.Key != "bad":
						spent[op] += op.Cost
					}
				}
				for op, cost := range spent {
					testenv.Equal(t, used(read(t, store, op), op), cost, op.Name, op.Key, "charged")
				}
			})
		})
	}
}

// used returns what is taken of a row of op's.
func used(row limiter.Row, op limiter.Op) int64 {
	return rowtest.Used(limiter.KindOf(op.Policy), row, op.At)
}
