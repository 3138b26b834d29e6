package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/sqlitecode"
)

// schemaVersion is the newest migration that the statements need.
const schemaVersion = 1

// Check reports whether the Store can work: the database answers, has all tables with all
// columns, lacks no migration and can be written. It reads a few rows and writes none, so a health
// check may call it each time. The error matches [limiter.ErrMisconfigured] if an operator must act,
// and says what to do.
//
// Check takes the write lock for a moment. If another connection holds the lock, Check does not
// wait and assumes that the file is writable; with a pool of [New], that pool's busy timeout
// applies. Check does not test whether the disk has room. It is safe for concurrent use.
func (s *Store) Check(ctx context.Context) error {
	_, writer, err := s.pools()
	if err == nil && s.file != nil {
		err = s.file.checkNow()
	}
	if err != nil {
		return fmt.Errorf("sqlite: check: %w", err)
	}
	// Use the connection that takes use, because that one sets up the file.
	err = attempt(ctx, func(ctx context.Context) error {
		for _, t := range allTables {
			if err := writer.query(ctx, t.check, nil); err != nil {
				return err
			}
		}
		if err := writer.query(ctx, "check_overrides", nil); err != nil {
			return err
		}
		if err := checkVersion(ctx, writer); err != nil {
			return err
		}
		// Not BEGIN IMMEDIATE, which succeeds on a file that can only be read.
		if _, err := writer.exec(ctx, "lock"); !sqlitecode.IsBusy(err) {
			return err
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("sqlite: check: %w", err)
	}
	return nil
}

// checkVersion returns an error if a migration that this release needs has not been applied.
func checkVersion(ctx context.Context, from session) error {
	var versioned, version int64
	into := func(n *int64) func([]driver.Value) error {
		return func(columns []driver.Value) error { return scan(columns, n) }
	}
	if err := from.query(ctx, "check_versioned", into(&versioned)); err != nil || versioned == 0 {
		return err
	}
	if err := from.query(ctx, "check_version", into(&version)); err != nil {
		return err
	}
	if version < schemaVersion {
		return fmt.Errorf("%w: limiter_goose_version records version %d of the tables, and this release needs %d; %s, which upgrades the tables or says what differs",
			limiter.ErrMisconfigured, version, schemaVersion, runUp)
	}
	return nil
}
