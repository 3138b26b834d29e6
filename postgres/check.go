package postgres

import (
	"context"
	"fmt"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/pgschema"
)

// schemaVersion is the newest migration that the statements need.
const schemaVersion = 1

// Check reports whether the store can work: the database answers, the tables are
// there with all of their columns, the role may read them, and goose's version
// table, if there is one that the role may read, is not behind. It is made for
// health checks, whose ctx should have a deadline: Check has no time limit of its own.
// It does not try to write. The error is [limiter.ErrMisconfigured], with the mend, or that
// of a failed connection.
func (s *Store) Check(ctx context.Context) error {
	if err := s.check(ctx); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	return nil
}

func (s *Store) check(ctx context.Context) error {
	var versions bool
	if _, err := s.queryRow(ctx, read, s.sql.check,
		[]any{pgschema.Quote(s.schema) + ".limiter_goose_version"}, &versions); err != nil {
		return err
	}
	if !versions {
		return nil // made without goose, or not ours to read: all columns are there
	}
	var version int64
	if _, err := s.queryRow(ctx, read, s.sql.version, nil, &version); err != nil {
		return err
	}
	if version < schemaVersion {
		return fmt.Errorf("%w: the schema is at version %d, and %d is needed%s",
			limiter.ErrMisconfigured, version, schemaVersion, s.migrate())
	}
	return nil
}
