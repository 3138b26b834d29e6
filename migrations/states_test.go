package migrations_test

import (
	"testing"

	"github.com/sqlimit/limiter/migrations"
)

// state is something that an operator can bring about.
type state struct {
	name  string
	make  func(t *testing.T, s site)
	check string   // what Check says before Up, "" if it passes
	up    []string // what Up says, nil if it succeeds
}

// unrecorded is what Check says if the tables exist, but the version table does not record a version.
const unrecorded = "limiter_goose_version records version 0"

// Up makes these usable.
var repairable = []state{
	{"nothing", func(*testing.T, site) {}, "migrations.Up", nil},
	{"migrated", func(t *testing.T, s site) { mustUp(t, s) }, "", nil},
	{"the schema alone is restored", func(t *testing.T, s site) {
		mustUp(t, s)
		run(t, s.DB, `DELETE FROM limiter_goose_version`)
	}, unrecorded, nil},
	{"the rows are lost, those of goose are not", func(t *testing.T, s site) {
		mustUp(t, s)
		run(t, s.DB, s.insert("limiter_token_buckets", "at", "5", 1), `DELETE FROM limiter_token_buckets`)
	}, "", nil},
	{"tables made by hand", func(t *testing.T, s site) { s.byHand(t) }, "", nil},
	{"tables made by hand, and version 0", func(t *testing.T, s site) {
		s.byHand(t)
		s.noteVersions(t, 0)
	}, unrecorded, nil},
	{"tables made by hand, and an empty version table", func(t *testing.T, s site) {
		s.byHand(t)
		s.noteVersions(t)
	}, unrecorded, nil},
	{"version 0 alone", func(t *testing.T, s site) { s.noteVersions(t, 0) }, "migrations.Up", nil},
	{"an empty version table alone", func(t *testing.T, s site) { s.noteVersions(t) }, "migrations.Up", nil},
	{"version 0 is missing", func(t *testing.T, s site) {
		mustUp(t, s)
		s.noteVersions(t, 1)
	}, "", nil},
	{"all versions are noted as taken back", func(t *testing.T, s site) {
		mustUp(t, s)
		run(t, s.DB, `UPDATE limiter_goose_version SET is_applied = false WHERE version_id > 0`)
	}, unrecorded, nil},
	{"version 1 is noted as taken back, and is", func(t *testing.T, s site) {
		s.noteVersions(t, 0, 1)
		run(t, s.DB, `UPDATE limiter_goose_version SET is_applied = false WHERE version_id = 1`)
	}, "migrations.Up", nil},
	{"the tables are lost, the version is not", func(t *testing.T, s site) { s.noteVersions(t, 0, 1) }, "migrations.Up", nil},
}

// Up leaves these alone and says what differs.
var unknown = []state{
	{"a column more", func(t *testing.T, s site) {
		s.byHand(t)
		run(t, s.DB, `ALTER TABLE limiter_token_buckets ADD COLUMN note text`)
	}, "", []string{"column limiter_token_buckets.note must not exist"}},
	{"a column more, and version 0", func(t *testing.T, s site) {
		s.byHand(t)
		s.noteVersions(t, 0)
		run(t, s.DB, `ALTER TABLE limiter_token_buckets ADD COLUMN note text`)
	}, unrecorded, []string{"column limiter_token_buckets.note must not exist"}},
	{"a column more that must have a value, and version 1", func(t *testing.T, s site) {
		s.byHand(t, s.each("", "    granted  INTEGER NOT NULL,"), s.each("", "    granted  INTEGER NOT NULL, note TEXT NOT NULL,"))
		s.noteVersions(t, 0, 1)
		if s.dialect == migrations.Postgres {
			run(t, s.DB, `ALTER TABLE limiter_token_buckets ADD COLUMN note text NOT NULL`)
		}
	}, "", []string{"column limiter_token_buckets.note must not exist"}},
	{"a column less", func(t *testing.T, s site) {
		s.byHand(t, s.each("", "    granted  INTEGER NOT NULL, -- units that the latest take was granted\n"), "",
			s.each("", "0 AND 4611686018427387904),\n    CONSTRAINT limiter_token_buckets_step_check CHECK (step >= 1),\n    CONSTRAINT limiter_token_buckets_capacity_check CHECK (capacity >= 1),\n    CONSTRAINT limiter_token_buckets_granted_check CHECK (granted >= 0)"),
			s.each("", "0 AND 4611686018427387904)"))
		if s.dialect == migrations.Postgres {
			run(t, s.DB, `ALTER TABLE limiter_token_buckets DROP COLUMN granted`)
		}
	}, "migrations.Up", []string{"column limiter_token_buckets.granted is missing"}},
	{"a column less than is noted", func(t *testing.T, s site) {
		mustUp(t, s)
		run(t, s.DB, `DROP VIEW limiter_remaining`, `ALTER TABLE limiter_token_buckets RENAME COLUMN granted TO given`)
	}, "migrations.Up", []string{"differ from version 1", "column limiter_token_buckets.granted is missing"}},
	{"another type", func(t *testing.T, s site) {
		s.byHand(t, s.each(`    limiter  text COLLATE "C" NOT NULL`, `    full_at  INTEGER NOT NULL`), s.each(`    limiter  varchar(64) COLLATE "C" NOT NULL`, `    full_at  REAL NOT NULL`))
	}, "", []string{"column limiter_token_buckets.", `character varying\(64\)|real`, "want "}},
	{"another type than is noted", func(t *testing.T, s site) {
		s.byHand(t, s.each(`    limiter  text COLLATE "C" NOT NULL`, `    full_at  INTEGER NOT NULL`), s.each(`    limiter  varchar(64) COLLATE "C" NOT NULL`, `    full_at  REAL NOT NULL`))
		s.noteVersions(t, 0, 1)
	}, "", []string{"column limiter_token_buckets.", "want "}},
	{"a column that may be NULL", func(t *testing.T, s site) {
		s.byHand(t, s.each("    granted  bigint           NOT NULL", "    granted  INTEGER NOT NULL"), s.each("    granted  bigint", "    granted  INTEGER"))
	}, "", []string{"column limiter_token_buckets.granted is (bigint|integer) .want (bigint NOT NULL|integer not null)"}},
	{"a default", func(t *testing.T, s site) {
		s.byHand(t, s.each("    granted  bigint           NOT NULL", "    granted  INTEGER NOT NULL"), s.each("    granted  bigint NOT NULL DEFAULT 0", "    granted  INTEGER NOT NULL DEFAULT 0"))
	}, "", []string{"column limiter_token_buckets.granted is .*(DEFAULT|default) 0"}},
	{"no check", func(t *testing.T, s site) {
		s.byHand(t, s.each("CHECK ((full_at", "CHECK (step >= 1)"), s.each("CHECK (true OR (full_at", "CHECK (step >= 0)"))
	}, "", []string{"constraint limiter_token_buckets.limiter_token_buckets_(step_)?check is .*want "}},
	{"no primary key", func(t *testing.T, s site) {
		s.byHand(t, "PRIMARY KEY (limiter, key)", "PRIMARY KEY (key, limiter)")
	}, "", []string{"constraint limiter_token_buckets.limiter_token_buckets_pkey"}},
	{"another primary key than is noted", func(t *testing.T, s site) {
		s.byHand(t, "PRIMARY KEY (limiter, key)", "PRIMARY KEY (key, limiter)")
		s.noteVersions(t, 0, 1)
	}, "", []string{"constraint limiter_token_buckets.limiter_token_buckets_pkey"}},
	{"other options of a table", func(t *testing.T, s site) {
		s.byHand(t, s.each("CREATE TABLE", ") STRICT, WITHOUT ROWID"), s.each("CREATE UNLOGGED TABLE", ")"))
	}, "", []string{"table limiter_token_buckets is .*want "}},
	{"an index more", func(t *testing.T, s site) {
		s.byHand(t)
		run(t, s.DB, `CREATE UNIQUE INDEX theirs ON limiter_fixed_windows (key)`)
	}, "", []string{"index theirs must not exist"}},
	{"one table of two", func(t *testing.T, s site) {
		s.byHand(t)
		run(t, s.DB, `DROP VIEW limiter_remaining`, `DROP TABLE limiter_fixed_windows`)
	}, "migrations.Up", []string{"table limiter_fixed_windows is missing", "view limiter_remaining is missing"}},
	{"one table of two, and version 1", func(t *testing.T, s site) {
		mustUp(t, s)
		run(t, s.DB, `DROP VIEW limiter_remaining`, `DROP TABLE limiter_token_buckets`)
	}, "migrations.Up", []string{"table limiter_token_buckets is missing"}},
	{"a table of others named limiter_overrides", func(t *testing.T, s site) {
		mustUp(t, s)
		run(t, s.DB, `DROP TABLE limiter_overrides`, `CREATE TABLE limiter_overrides (theirs integer)`)
	}, "migrations.Up", []string{"differ from version 1", "column limiter_overrides.capacity is missing"}},
	{"the table of overrides is missing, and version 1", func(t *testing.T, s site) {
		mustUp(t, s)
		run(t, s.DB, `DROP TABLE limiter_overrides`)
	}, "migrations.Up", []string{"differ from version 1: table limiter_overrides is missing"}},
	{"no view", func(t *testing.T, s site) {
		s.byHand(t)
		run(t, s.DB, `DROP VIEW limiter_remaining`)
	}, "", []string{"view limiter_remaining is missing"}},
	{
		"another view", func(t *testing.T, s site) { s.byHand(t, "'token bucket'", "'bucket'") }, "",
		[]string{"view limiter_remaining has another definition"},
	},
	{"a table of others with a name of ours", func(t *testing.T, s site) {
		run(t, s.DB, `CREATE TABLE limiter_remaining (theirs integer)`)
	}, "migrations.Up", []string{"table limiter_remaining must not exist", "view limiter_remaining is missing"}},
	{"an index of others with a name of ours", func(t *testing.T, s site) {
		run(t, s.DB, `CREATE TABLE theirs (i integer)`, `CREATE INDEX limiter_remaining ON theirs (i)`)
	}, "migrations.Up", []string{"index limiter_remaining must not exist"}},
	{"a version table of others", func(t *testing.T, s site) {
		run(t, s.DB, `CREATE TABLE limiter_goose_version (theirs integer)`)
	}, "migrations.Up", []string{"limiter_goose_version is not goose's"}},
	{
		"a newer version, without its tables", func(t *testing.T, s site) { s.noteVersions(t, 0, 1, 99) }, "migrations.Up",
		[]string{"version 99", "table limiter_token_buckets is missing", "newer release"},
	},
}
