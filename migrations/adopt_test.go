package migrations_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/migrations"
)

func TestUpRepairsWhatMatchesAVersion(t *testing.T) {
	t.Parallel()
	eachState(t, repairable, func(t *testing.T, s site, _ state) {
		mustUp(t, s)
		s.wantUsable(t)
		s.wantGolden(t)
		s.down(t, s.opts...)
		s.wantEmpty(t)
	})
}

func TestUpAdoptsTheSameDefinitionInAnotherLayout(t *testing.T) {
	t.Parallel()
	onSites(t, func(t *testing.T, s site) {
		s.byHand(t, "limiter_token_buckets (", "\"limiter_token_buckets\"\n\n(", "NOT NULL,", "not  null /* never */ ,")
		mustUp(t, s)
		s.wantUsable(t)
	})
}

func TestUpLeavesTheApplicationsTablesAlone(t *testing.T) {
	t.Parallel()
	onSites(t, func(t *testing.T, s site) {
		run(t, s.DB, `CREATE TABLE limiter_accounts (i integer)`, `CREATE TABLE limiter (i integer)`,
			`CREATE VIEW limiter_accounts_view AS SELECT i FROM limiter_accounts`)
		before := s.everything(t)
		mustUp(t, s)
		s.wantUsable(t)
		s.down(t, s.opts...)
		s.wantUnchanged(t, before)
	})
}

// remedy matches the statements that an error of Up offers.
var remedy = regexp.MustCompile(`drop them with the state of every key \((DROP .*)\) and try again`)

func TestUpSaysWhatDiffersAndLeavesNoTrace(t *testing.T) {
	t.Parallel()
	eachState(t, unknown, func(t *testing.T, s site, c state) {
		before := s.everything(t)
		err := s.up(t)
		if !errors.Is(err, limiter.ErrMisconfigured) {
			t.Fatalf("Up: %v, want ErrMisconfigured", err)
		}
		for _, want := range c.up {
			if !regexp.MustCompile(want).MatchString(err.Error()) {
				t.Errorf("Up: %v, want %q in it", err, want)
			}
		}
		s.wantUnchanged(t, before)
		// The advice helps.
		if found := remedy.FindStringSubmatch(err.Error()); found != nil {
			run(t, s.DB, found[1])
		} else {
			run(t, s.DB, `DROP TABLE limiter_goose_version`)
		}
		mustUp(t, s)
		s.wantUsable(t)
	})
}

// The comparison looks for tables and views by their names. Other things may have one of these.
func TestUpNamesTheRemedyForAnObjectThatItDoesNotCompare(t *testing.T) {
	t.Parallel()
	onSites(t, func(t *testing.T, s site) {
		obstacle, remove := `CREATE TYPE limiter_fixed_windows AS ENUM ('theirs')`, `DROP TYPE limiter_fixed_windows`
		if s.dialect == migrations.SQLite {
			run(t, s.DB, `CREATE TABLE limiter_accounts (i integer)`)
			obstacle, remove = `CREATE INDEX limiter_remaining ON limiter_accounts (i)`, `DROP INDEX limiter_remaining`
		}
		run(t, s.DB, obstacle)
		before := s.everything(t)
		wantMisconfigured(t, "Up", s.up(t), "drop or rename it", "already")
		s.wantUnchanged(t, before)
		run(t, s.DB, remove)
		mustUp(t, s)
		s.wantUsable(t)
	})
}

func TestDownSaysWhatKeepsItFromRevertingAMigration(t *testing.T) {
	t.Parallel()
	onSites(t, func(t *testing.T, s site) {
		mustUp(t, s)
		run(t, s.DB, `DROP VIEW limiter_remaining`)
		s.wantUsable(t) // no store needs the view
		before := s.everything(t)
		err := migrations.Down(t.Context(), s.dialect, s.DB, s.opts...)
		wantMisconfigured(t, "Down", err, "view limiter_remaining is missing", "down")
		s.wantUnchanged(t, before)
		run(t, s.DB, remedy.FindStringSubmatch(err.Error())[1])
		s.down(t, s.opts...)
		s.wantEmpty(t)
	})
}

func TestUpLeavesAloneWhatAnOperatorHasTuned(t *testing.T) {
	t.Parallel()
	onSites(t, func(t *testing.T, s site) {
		mustUp(t, s)
		run(t, s.DB, `CREATE INDEX theirs ON limiter_fixed_windows (at)`,
			`ALTER TABLE limiter_token_buckets ADD COLUMN note text`)
		if s.dialect == migrations.Postgres {
			run(t, s.DB, `ALTER TABLE limiter_token_buckets SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.01)`,
				`ALTER TABLE limiter_fixed_windows SET UNLOGGED`, `COMMENT ON TABLE limiter_fixed_windows IS 'ours'`,
				`ALTER TABLE limiter_fixed_windows DROP CONSTRAINT limiter_fixed_windows_check`)
		}
		s.wantUsable(t)
	})
}

func TestUpAdoptsTablesWithOtherAutovacuumAndComments(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, d database) {
		s := site{database: d}
		s.byHand(t)
		run(t, d.DB, `ALTER TABLE limiter_token_buckets SET (autovacuum_vacuum_scale_factor = 0.01)`,
			`COMMENT ON TABLE limiter_fixed_windows IS NULL`)
		mustUp(t, s)
		s.wantUsable(t)
		// fillfactor matters: without room in its page, an update must write to the index.
		run(t, d.DB, `DROP TABLE limiter_goose_version`, `ALTER TABLE limiter_token_buckets RESET (fillfactor)`)
		wantMisconfigured(t, "Up", s.up(t), "storage parameter limiter_token_buckets.fillfactor is missing (want 70)", "")
	})
}

func TestUpOfAnOlderReleaseChangesNothing(t *testing.T) {
	t.Parallel()
	onSites(t, func(t *testing.T, s site) {
		mustUp(t, s)
		s.noteVersions(t, 0, 1, 2)
		run(t, s.DB, `ALTER TABLE limiter_token_buckets ADD COLUMN later text`)
		s.wantUsable(t)
		before := s.everything(t)
		err := migrations.Down(t.Context(), s.dialect, s.DB, s.opts...)
		wantMisconfigured(t, "Down", err, "version 2", "newer release")
		s.wantUnchanged(t, before)
	})
}

func TestTheGooseCommandAgreesWithWhatUpAdopted(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		for _, versions := range [][]int64{nil, {}, {0}} {
			s := site{database: d}
			s.byHand(t)
			if versions != nil {
				s.noteVersions(t, versions...)
			}
			mustUp(t, s)
			if got := d.cli(t, "status"); strings.Contains(got, "Pending") || !strings.Contains(got, "00001_create_limiter_tables.sql") {
				t.Errorf("goose status after Up: %q", got)
			}
			if got := d.cli(t, "version"); !strings.HasSuffix(got, "version 1") {
				t.Errorf("goose version after Up: %q", got)
			}
			before := s.everything(t)
			d.cli(t, "up") // nothing to do
			s.wantUnchanged(t, before)
			d.cli(t, "down-to", "0")
			d.wantApplied(t, false)
			d.down(t)
			d.wantEmpty(t)
		}
	})
}

func TestDeploymentsAtOnceAdoptOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		s := site{database: d}
		s.byHand(t)
		if err := d.together(t, 6, nil, migrations.Up); err != nil {
			t.Errorf("Up: %v", err)
		}
		s.wantUsable(t)
	})
}

func TestUpInOneSchemaDoesNotMindTablesInAnother(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, d database) {
		run(t, d.DB, `CREATE SCHEMA elsewhere`)
		other := site{database: d}.in(t, "elsewhere")
		other.byHand(t)
		before := other.dump(t)

		s := site{database: d}
		s.wantCheck(t, "migrations.Up")
		mustUp(t, s)
		s.wantUsable(t)
		if after := other.dump(t); after != before {
			t.Errorf("schema elsewhere changed:\n%s\nwas:\n%s", after, before)
		}
		mustUp(t, other)
		other.wantUsable(t)
	})
}

func TestRolesThatMayNotAdoptAreToldWhatTheyNeed(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, d database) {
		run(t, d.DB, `CREATE SCHEMA app`)
		s := site{database: d}.in(t, "app")
		s.byHand(t)
		before := s.everything(t)
		role := s
		role.database = s.role(t, `GRANT USAGE ON SCHEMA app`)
		wantMisconfigured(t, "Up without CREATE", role.up(t), "CREATE on schema", "42501")
		s.wantUnchanged(t, before)
		s.noteVersions(t, 0)
		before = s.everything(t)
		wantMisconfigured(t, "Up without the version table", role.up(t), "limiter_goose_version", "42501")
		s.wantUnchanged(t, before)
		mustUp(t, s)
		s.wantUsable(t)
		run(t, s.DB, `GRANT SELECT ON limiter_goose_version TO PUBLIC`)
		if err := role.up(t); err != nil {
			t.Errorf("Up with nothing to do, by a role that may only read: %v", err)
		}
	})
}

// Without temporary tables Up cannot compare. It still migrates.
func TestWithoutTemporaryTablesUpMigratesAndAsksForThemToAdopt(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, d database) {
		run(t, d.DB, `DO $$BEGIN EXECUTE 'REVOKE TEMPORARY ON DATABASE ' || current_database() || ' FROM PUBLIC'; END$$`)
		s := site{database: d}
		role := s
		role.database = s.role(t, `GRANT USAGE, CREATE ON SCHEMA public`)
		mustUp(t, role)
		role.wantUsable(t)
		d.wantGolden(t)
		run(t, role.DB, `DROP TABLE limiter_goose_version`)
		err := role.up(t)
		wantMisconfigured(t, "Up", err, "GRANT TEMPORARY", "already exists")
		run(t, d.DB, `DO $$BEGIN EXECUTE 'GRANT TEMPORARY ON DATABASE ' || current_database() || ' TO PUBLIC'; END$$`)
		mustUp(t, role)
		role.wantUsable(t)
	})
}
