// Package sqlite stores the state of limiters in a SQLite database.
//
// Use it when all processes that share a limit run on one host, in tests that need real SQL, or in a
// program that has a SQLite file anyway. It needs neither cgo nor a server.
//
//	store, err := sqlite.Open("app.db")
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//	// Once, when the program is deployed:
//	if err := migrations.Up(ctx, migrations.SQLite, store.DB()); err != nil {
//		return err
//	}
//	logins, err := limiter.New(store, "login", limiter.PerMinute(5))
//
// # One file is one host
//
// A SQLite file limits only the processes that open it. On AWS Lambda and Cloud Run each instance
// has its own file, so ten instances admit ten times as much. On network filesystems (EFS, NFS, GCS
// FUSE) SQLite's locks and shared memory do not work; put no database there. For more than one host
// use package postgres.
//
// Do not remove or replace the file while a process has it open. SQLite continues in the old file,
// which disappears with the process. A Store of [Open] checks its file, and the -wal and -shm files
// beside it, after 100 ms or 32 uses of a connection. If one is not the same file or was emptied,
// operations fail with [limiter.ErrMisconfigured] until it is back, or until the Store is closed and
// another one is opened. The Store never creates a new file then, and never switches to another one.
// With [New] this is the task of the pool's owner.
//
// # Decisions
//
// A take first reads the key's row. If the row refuses it, nothing is locked or written, so refused requests
// run beside each other and beside the one writer that SQLite allows. Otherwise one UPSERT decides and
// writes, in the same transaction as the read or in one that has the write lock. For a sliding window, Go
// code decides from the row that was read, in such a transaction, because no UPSERT can. A take by AllowUpTo
// needs no lock either if there is room for nothing. Peek never needs it. A request on a window that counts
// refusals, Charge and Block always write.
//
// AllowAll reads the rows of all claims as of one instant. If one of them refuses, nothing is locked
// or written. Otherwise one transaction that has the write lock decides and writes all rows.
//
// Operations of one Store that arrive while others are in flight wait, and share the next
// transaction. Equal takes of one key share one UPSERT. They admit what they would admit one after
// another. An AllowAll waits in the same line, and has a transaction of its own. Between Stores and
// processes, SQLite's write lock decides.
//
// If the context or time limit of a caller ends while the caller waits, nothing is charged. If it
// ends while a shared transaction is in flight, the error is [limiter.ErrOutcomeUnknown].
//
// The clock is that of the process, in nanoseconds. All processes of one host have the same clock.
//
// # Durability
//
// A decision survives the end of the process, even by a signal. With [Open] a take does not wait for
// the disk (WAL, synchronous=NORMAL): a power loss or a crash of the operating system may forget the
// latest takes, but never damages the file. With [New] the pool's settings decide.
//
// # A full disk
//
// On a full disk, keys that have a row are decided as usual. New keys fail with
// [limiter.ErrNotApplied]. To make that possible, a Store of [Open] enlarges the file before it
// needs the pages: by an eighth, at least 64 and at most 512 pages. All keys may still fail in these cases:
//   - Other tables grow in the same file while the disk fills up.
//   - Another connection reads in one transaction, so that the log cannot start anew.
//   - The database has auto_vacuum, so it keeps no free pages.
//   - The filesystem never overwrites in place (Btrfs, ZFS).
//
// A Store of [New] copies the log to the file and tries once more, which helps only until a new key
// needs a page.
package sqlite
