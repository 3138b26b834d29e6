package sqlite

import (
	"context"
	"time"

	"github.com/sqlimit/limiter"
)

// SchemaVersion is the latest migration that the statements need.
const SchemaVersion = schemaVersion

// MergedKeys is how many keys one transaction takes.
const MergedKeys = mergedKeys

// FileURI and Statement are tested by themselves.
var FileURI = fileURI

// InterpretError is interpretError in a context that has not ended.
func InterpretError(err error, writes bool) error {
	return interpretError(context.Background(), err, writes)
}

// Attempt is attempt.
var Attempt = attempt

// SetClock gives s another clock, before its first use.
func (s *Store) SetClock(now func() time.Time) { s.now = now }

// Statements returns the text of every statement, by name.
func Statements() map[string]string {
	named := map[string]string{}
	for name, text := range texts {
		named[string(name)] = text
	}
	return named
}

// Upsert takes units of op by the statement alone, and reports whether it granted them.
func (s *Store) Upsert(ctx context.Context, op limiter.Op, units int64) (granted bool, err error) {
	t, err := tableOf(op.Policy)
	if err != nil {
		return false, err
	}
	_, writer, err := s.pools()
	if err != nil {
		return false, err
	}
	st, args := t.takeStatement(&op, op.At, units, keyArgs(&op))
	changed, err := writer.exec(ctx, st, args...)
	return changed > 0, err
}
