// Package database reads and changes the tables of limiter in PostgreSQL and SQLite. The commands
// call it.
package database

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/postgres"
	"github.com/sqlimit/limiter/sqlite"
)

// DB is an open database. It is safe for concurrent use.
type DB struct {
	// Dialect is that of the database.
	Dialect migrations.Dialect
	// SQL runs statements on either database. Arguments are $1, $2 and so on; [DB.text] replaces @ by the
	// schema.
	SQL *sql.DB
	// Path is the file of SQLite, and empty for PostgreSQL.
	Path string
	// Schema is that of the tables in PostgreSQL.
	Schema string
	// URL is that of PostgreSQL as it was given.
	URL string

	pool *pgxpool.Pool
	file *sqlite.Store
}

// Options are the settings of [Open].
type Options struct {
	URL    string // postgres://..., host=... dbname=..., or sqlite:PATH
	Schema string // in PostgreSQL; empty means public
	Create bool   // make the file of SQLite if it does not exist
}

// Open opens a database. For PostgreSQL it does no I/O. The error matches [limiter.ErrInvalid] if an
// option is wrong, and [os.ErrNotExist] if there is no such file. It never holds a password.
func Open(ctx context.Context, o Options) (*DB, error) {
	const forms = "postgres://..., 'host=... dbname=...' or sqlite:PATH"
	path, isFile := strings.CutPrefix(o.URL, "sqlite:")
	switch {
	case isFile:
		return openSQLite(path, o)
	case strings.HasPrefix(o.URL, "postgres://"), strings.HasPrefix(o.URL, "postgresql://"), keyword.MatchString(o.URL):
		return openPostgres(ctx, o)
	case o.URL == "":
		return nil, fmt.Errorf("%w: no database is given; pass --database or set DATABASE_URL to %s", limiter.ErrInvalid, forms)
	}
	// The error does not quote the URL, which may hold a password.
	return nil, fmt.Errorf("%w: the database must be %s", limiter.ErrInvalid, forms)
}

// keyword matches a connection string of keywords, such as "host=db dbname=app".
var keyword = regexp.MustCompile(`^\s*[a-z_]+\s*=`)

func openSQLite(path string, o Options) (*DB, error) {
	if o.Schema != "" {
		return nil, fmt.Errorf("%w: SQLite has no schemas; leave out --schema", limiter.ErrInvalid)
	}
	switch {
	case path == "":
		return nil, fmt.Errorf("%w: sqlite: has no path; write the path of the file, such as sqlite:app.db", limiter.ErrInvalid)
	case path == ":memory:":
		return nil, fmt.Errorf("%w: a database in memory would end with the command; write the path of a file, such as sqlite:app.db", limiter.ErrInvalid)
	case strings.HasPrefix(path, "file:"):
		return nil, fmt.Errorf("%w: the path begins with file:; write the path alone, such as sqlite:app.db", limiter.ErrInvalid)
	}
	if !o.Create { // opening would make an empty file
		_, err := os.Stat(path)
		switch {
		case errors.Is(err, os.ErrNotExist):
			return nil, fmt.Errorf("open the database: %w; create it by limiter migrate up", err)
		case err != nil:
			return nil, fmt.Errorf("open the database: %w: %w; check the path, and that this account may read the file and its directories", limiter.ErrMisconfigured, err)
		}
	}
	store, err := sqlite.Open(path)
	if err != nil {
		return nil, err
	}
	return &DB{Dialect: migrations.SQLite, SQL: store.DB(), Path: path, file: store}, nil
}

func openPostgres(ctx context.Context, o Options) (*DB, error) {
	if o.Schema == "" {
		o.Schema = "public"
	}
	// Open checks the URL and the schema, and its errors hold no password. It does not connect.
	checked, err := postgres.Open(o.URL, postgres.WithSchema(o.Schema))
	if err != nil {
		return nil, err
	}
	if err := checked.Close(); err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(o.URL)
	if err != nil {
		return nil, errors.New("the database's URL cannot be parsed")
	}
	configure(config.ConnConfig, o.URL)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	return &DB{
		Dialect: migrations.Postgres, SQL: stdlib.OpenDBFromPool(pool),
		Schema: o.Schema, URL: o.URL, pool: pool,
	}, nil
}

// configure completes the settings of a URL. The query mode is one that works behind every pooler. In it, times
// arrive as text in the zone and the style of the session.
func configure(c *pgx.ConnConfig, url string) {
	if !has(url, "connect_timeout") && os.Getenv("PGCONNECT_TIMEOUT") == "" {
		c.ConnectTimeout = connectTimeout
	}
	if !has(url, "default_query_exec_mode") {
		c.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	// PGTZ and a URL may spell the names in another way.
	maps.DeleteFunc(c.RuntimeParams, func(name, _ string) bool {
		return strings.EqualFold(name, "TimeZone") || strings.EqualFold(name, "DateStyle")
	})
	// The values are as the server reports them. Otherwise PgBouncer would set them again.
	c.RuntimeParams["TimeZone"], c.RuntimeParams["DateStyle"] = "UTC", "ISO, MDY"
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = "limiter"
	}
}

// has reports whether a URL or a list of keywords has a setting.
func has(url, setting string) bool {
	return regexp.MustCompile(`\b` + setting + `\s*=`).MatchString(url)
}

// Name names the database for people: the file, or the host, the database and the schema. It has no
// password.
func (db *DB) Name() string {
	if db.file != nil {
		return "file " + db.Path
	}
	c := db.pool.Config().ConnConfig
	where := fmt.Sprintf("host %s, port %d", c.Host, c.Port)
	if len(c.Fallbacks) > 0 && c.Fallbacks[len(c.Fallbacks)-1].Host != c.Host {
		where += " and others"
	}
	return fmt.Sprintf("database %q, schema %q on %s", c.Database, db.Schema, where)
}

// closeTimeout is how long [DB.Close] waits for a server that does not answer. pgx alone waits for
// 15 s after a statement was interrupted, and the program would not end.
const closeTimeout = time.Second

// Close closes all connections.
func (db *DB) Close() {
	if db.file != nil {
		_ = db.file.Close()
		return
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = db.SQL.Close()
		db.pool.Close()
	}()
	select {
	case <-closed:
	case <-time.After(closeTimeout):
	}
}

// text returns a statement in which the name of the schema replaces each @. A statement reads a key by hex(key),
// because pgx cannot decode what bytea_output = escape writes.
func (db *DB) text(statement string) string {
	if db.Dialect == migrations.SQLite {
		return strings.ReplaceAll(statement, "@", "")
	}
	// The name needs no escaping: postgres.Open has checked it.
	return strings.NewReplacer("@", `"`+db.Schema+`".`, "hex(key)", "pg_catalog.encode(key, 'hex')").Replace(statement)
}

// hexKey reads a key from what hex(key) returns.
type hexKey struct{ key *[]byte }

func (h hexKey) Scan(src any) error {
	var text sql.NullString
	err := text.Scan(src)
	if err == nil {
		*h.key, err = hex.DecodeString(text.String)
	}
	return err
}

// now returns the expression for the database's clock in nanoseconds since 1970.
func (db *DB) now() string {
	if db.Dialect == migrations.Postgres {
		return "(pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000::double precision)::bigint * 1000"
	}
	return "CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000000"
}
