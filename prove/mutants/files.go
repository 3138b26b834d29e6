package main

// files are bugs of what becomes of a SQLite file while a process has it open.
var files = []Mutant{
	{
		Name:  "file-gone-unseen",
		CI:    true,
		Bug:   "takes are granted in a file that was removed or replaced, and are lost with it",
		Edits: []Edit{{"sqlite/raw.go", "	if err := p.file.check(); err != nil {\n		return nil, err\n	}\n	<-p.free", "	<-p.free"}},
		Check: Check{Package: "./sqlite", Run: "^TestATakeThatWaitsForALockMissesTheFileMeanwhile$", Says: "of whose file nothing was left when the lock was free"},
	},
	{
		Name: "companions-gone-unseen",
		Bug:  "the store does not notice that a file's log, with the last takes, is gone",
		Edits: []Edit{{
			"sqlite/file.go", "file, err := stat(path + suffix)", "file, err := stat(path)",
		}},
		Check: Check{Package: "./sqlite", Run: "^TestCompanionsOfAFileThatWasNotInWALModeAreMissedToo$", Says: "that -wal is gone is not noticed"},
	},
	{
		Name:  "damaged-connection-kept",
		Bug:   "a connection that has read damaged pages is kept after the file was repaired, and still reads them",
		Edits: []Edit{{"sqlite/raw.go", "	if err != nil && sqlitecode.Advice(sqlitecode.Of(err)) != \"\" {\n		c.broken = true", "	if err != nil && sqlitecode.Advice(sqlitecode.Of(err)) == \"\" {\n		c.broken = true"}},
		Check: Check{Package: "./sqlite", Run: "^TestFaults_of_files$/^the_pages_are_garbage$", Says: "after the fault: "},
	},
}
