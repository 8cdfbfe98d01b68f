// Package store keeps the journal of one container: perdure.db in its bundle.
//
// [Journal.Commit] writes records, folded state and outbox rows in one transaction. Whoever answers a client or
// sends an event does so after Commit has returned. State is read from memory, without a lock, and is what was
// committed last. The rules of what may follow what are package lifecycle's; this package is the only one that
// knows bbolt.
//
// Failure model: the death of the process at any instruction, not of the machine. Nothing is synced to disk:
// what was written is in the page cache when Commit returns, and a machine that restarts has no containers to
// adopt. A file of another boot (Meta.BootID) is history. A full disk fails a Commit and leaves the file as
// it was.
//
// A file that is damaged, cut short, empty, another program's or newer than this package never panics and
// never blocks: every page is verified, under the lock, before bbolt may follow a pointer in it; faults on the
// mapping are caught as well, and afterwards the journal refuses everything with [ErrDamaged].
//
// The lock on the file is the fence against a second worker. It belongs to the open file description, so
// the descriptor given to the keeper ([Journal.File]) is of another one.
package store

import "errors"

// The ways a journal can refuse. Errors returned wrap one of these, or the system's.
var (
	// ErrExists says that the bundle has a journal of this boot with records in it.
	ErrExists = errors.New("the bundle has a journal already")
	// ErrLocked says that another process has the journal open.
	ErrLocked = errors.New("the journal is open in another process")
	// ErrDamaged says that the file is not a whole journal; set it aside and rebuild from the runtime.
	ErrDamaged = errors.New("the journal is damaged")
	// ErrForeign says that the file is a sound bbolt database of another program. It is an ErrDamaged.
	ErrForeign error = foreign{}
	// ErrNewerSchema says that a newer perdure wrote the file; only that version may open it.
	ErrNewerSchema = errors.New("the journal was written by a newer perdure")
	// ErrClosed says that the journal was closed before the call.
	ErrClosed = errors.New("the journal is closed")
)

type foreign struct{}

func (foreign) Error() string        { return "the database is not a journal of perdure" }
func (foreign) Is(target error) bool { return target == ErrDamaged }
