package migrations

import "io/fs"

// From makes Up, Down and Status take the migrations of files.
func From(files fs.FS) Option {
	return func(c *config) error {
		c.source = files
		return nil
	}
}
