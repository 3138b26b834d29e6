package sqlite

import "time"

// SchemaVersion is the latest migration that the statements need.
const SchemaVersion = schemaVersion

// MergedKeys is how many keys one transaction takes.
const MergedKeys = mergedKeys

// These are tested by themselves.
var (
	Attempt        = attempt
	FileURI        = fileURI
	InterpretError = interpretError
	IsOutage       = isOutage
	Texts          = texts
)

// SetClock gives s another clock, before its first use.
func (s *Store) SetClock(now func() time.Time) { s.now = now }

// EndCopies waits until no goroutine copies the log. Nothing must be written meanwhile.
func (s *Store) EndCopies() { s.copies.Wait() }
