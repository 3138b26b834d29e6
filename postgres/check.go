package postgres

import (
	"context"
	"fmt"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/pgschema"
)

// schemaVersion is the newest migration that the statements need.
const schemaVersion = 1

// Check reports whether the store can work: the database answers, all tables exist with all
// columns, the role may read them, and no migration is missing. If Citus distributes the tables, the
// store must have [WithCitus]. Check compares versions only if goose's version table exists and the
// role may read it. Check writes nothing. The error matches [limiter.ErrMisconfigured] and says what
// to do, or it is the error of a failed connection.
//
// Use Check for health checks. It has no time limit of its own, so give ctx a deadline. It is safe
// for concurrent use.
func (s *Store) Check(ctx context.Context) error {
	if err := s.check(ctx); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	return nil
}

func (s *Store) check(ctx context.Context) error {
	var versions, citus bool
	if err := s.queryRow(ctx, read, s.checkText(),
		[]any{pgschema.Quote(s.schema) + ".limiter_goose_version"}, &versions, &citus); err != nil {
		return err
	}
	if citus && !s.citus {
		if err := s.checkCitus(ctx); err != nil {
			return err
		}
	}
	if !versions {
		return nil // made without goose, or not ours to read; all columns are there
	}
	var version int64
	if err := s.queryRow(ctx, read, s.inSchema(s.text("version")), nil, &version); err != nil {
		return err
	}
	if version < schemaVersion {
		return fmt.Errorf("%w: limiter_goose_version records version %d of the tables, and this release needs %d; %s, which upgrades the tables or says what differs",
			limiter.ErrMisconfigured, version, schemaVersion, s.up())
	}
	return nil
}
