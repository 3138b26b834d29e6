package postgres_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/internal/keyleak"
	"github.com/sqlimit/limiter/internal/rowtest"
)

// talkative makes sessions of a database tell the server's log all that there is to tell.
var talkative = map[string]string{
	"log_statement": "all", "log_duration": "on", "log_min_duration_statement": "0",
	"log_parameter_max_length": "-1", "log_parameter_max_length_on_error": "-1",
	"log_error_verbosity": "verbose", "log_min_error_statement": "debug5",
	"log_lock_waits": "on", "deadlock_timeout": "10ms", "debug_print_plan": "on",
}

// transcript keeps what was said, by who said it.
type transcript struct {
	mu sync.Mutex
	by map[string][]byte
}

func (h *transcript) add(source string, text []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.by[source] = append(append(h.by[source], text...), '\n')
}

// holders are what holds a key that is not digested. Nothing else does at any time.
var holders = []string{"server's log", "write-ahead log", "tables", "files of the tables", "pgx's tracer", "fields of errors"}

// It is not parallel, because it searches all that the server writes meanwhile.
func TestKeyThatIsDigestedIsNowhereToBeFound(t *testing.T) {
	dbtest.EachPostgres(t, func(t *testing.T, server *dbtest.Server) {
		d := newDatabase(t, server)
		if !query[bool](t, d, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") {
			t.Skip("only a superuser reads the files of a server")
		}
		name := query[string](t, d, "SELECT current_database()::text")
		for setting, value := range talkative {
			d.exec(t, fmt.Sprintf("ALTER DATABASE %s SET %s = '%s'", name, setting, value))
		}
		wal := d.keepWAL(t)
		secret := "the-secret-of-" + rand.Text()
		digested, plain := "alice+"+rand.Text()+"&ö@example.org", "bob+"+rand.Text()+"&é@example.net"
		with, without := &transcript{by: map[string][]byte{}}, &transcript{by: map[string][]byte{}}
		(&leakProbe{d, with, digested, []limiter.Option{limiter.WithKeyDigest([]byte(secret))}}).run(t)
		(&leakProbe{d, without, plain, nil}).run(t)
		for _, h := range []*transcript{with, without} {
			h.add("server's log", d.log(t, server))
			h.add("write-ahead log", wal())
			d.stored(t, h)
		}

		traces, control := keyleak.Of(digested, secret), keyleak.Of(plain)
		for _, source := range slices.Sorted(maps.Keys(with.by)) {
			if found := traces.In(with.by[source]); len(found) > 0 {
				t.Errorf("%s: the key or the secret as %s", source, strings.Join(found, ", "))
			}
			// What would show a digested key shows one that is not, and nothing else does.
			found := control.In(without.by[source])
			if slices.Contains(holders, source) != (len(found) > 0) {
				t.Errorf("%s, %d bytes: a key that is not digested as %q", source, len(without.by[source]), found)
			}
		}
		for _, source := range holders {
			if len(with.by[source]) < 100 {
				t.Errorf("nothing was heard of %s", source)
			}
		}
	})
}

// log returns the server's log with all that was said before.
func (d *database) log(t *testing.T, server *dbtest.Server) []byte {
	t.Helper()
	mark := "all is said " + rand.Text()
	d.exec(t, "DO $$BEGIN RAISE LOG '"+mark+"'; END$$")
	var text []byte
	waitFor(t, "the mark appears in the server's log", func() bool {
		text = server.Log(t)
		return bytes.Contains(text, []byte(mark))
	})
	return text
}

// keepWAL returns a function that reads what was written to the write-ahead log since
// then.
func (d *database) keepWAL(t *testing.T) (read func() []byte) {
	t.Helper()
	slot := "leak_" + strings.ToLower(rand.Text())
	query[string](t, d, "SELECT pg_create_physical_replication_slot($1, true)::text", slot)
	t.Cleanup(func() {
		if _, err := d.db.Exec("SELECT pg_drop_replication_slot($1)", slot); err != nil {
			t.Errorf("drop the slot: %v", err)
		}
	})
	first := query[string](t, d, "SELECT pg_walfile_name(pg_current_wal_lsn())")
	return func() []byte {
		return d.files(t, `SELECT 'pg_wal/' || name FROM pg_ls_waldir()
			WHERE name BETWEEN $1 AND pg_walfile_name(pg_current_wal_lsn()) ORDER BY name`, first)
	}
}

// files reads the files that a query names.
func (d *database) files(t *testing.T, names string, args ...any) (all []byte) {
	t.Helper()
	rows, err := d.db.QueryContext(bounded(t), `SELECT pg_read_binary_file(name) FROM (`+names+`) AS files (name)`, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var text []byte
		if err := rows.Scan(&text); err != nil {
			t.Fatal(err)
		}
		all = append(all, text...)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// stored adds what the tables say, and what is in their files and those of their indexes.
func (d *database) stored(t *testing.T, h *transcript) {
	t.Helper()
	ours := `FROM pg_class WHERE relname ~ '^(` + strings.ReplaceAll(rowtest.SQL{}.Names(), ", ", "|") + `)'`
	dump := query[string](t, d, `SELECT string_agg(query_to_xml('SELECT * FROM ' || oid::regclass, true, true, '')::text, '') `+ours+` AND relkind = 'r'`)
	h.add("tables", []byte(dump))
	d.exec(t, "CHECKPOINT")
	h.add("files of the tables", d.files(t, `SELECT pg_relation_filepath(oid) `+ours))
}
