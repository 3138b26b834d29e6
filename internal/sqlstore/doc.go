// Package sqlstore is what the SQL stores share around their statements: time limits, retries,
// the breaker, classes of errors, and the sweep. Packages postgres and sqlite call it, and
// internal/batch.
package sqlstore
