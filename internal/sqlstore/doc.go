// Package sqlstore is the part around the statements that the SQL stores share: time limits,
// retries, the breaker, error classes, and sweeps. Packages postgres, sqlite and internal/batch
// call it. See DESIGN.md, "Failure".
package sqlstore
