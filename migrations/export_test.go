package migrations

import "io/fs"

// From makes Up, Down and Status take the migrations of files.
func From(files fs.FS) Option {
	return func(c *config) error {
		c.source = files
		return nil
	}
}

// Wanted returns the types of the columns of each table that Up compares.
func Wanted(d Dialect) map[string]map[string]string { return config{dialect: d}.wanted() }
