// Package store is what a source keeps its works with: the interface [Store], which the packages
// below implement with a file and with PostgreSQL.
//
// A client of package source holds all works in memory and writes each change to its Store before
// the change becomes visible and is published. The stored works are the outbox: a work is published
// until its agent confirms it, also by the client that runs after a crash.
package store

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/wire"
)

// Errors of a Store. Their causes are wrapped; tell them apart with [errors.Is].
var (
	// ErrInUse: another process uses the store, which only one may.
	ErrInUse = errors.New("another process holds the store")
	// ErrIncompatible: the store belongs to another source, or to a later version of this program.
	ErrIncompatible = errors.New("incompatible store")
	// ErrDamaged: the store cannot be read.
	ErrDamaged = errors.New("damaged store")
	// ErrUnavailable: the database cannot be reached. Nothing was stored.
	ErrUnavailable = errors.New("the database cannot be reached")
	// ErrOutcomeUnknown: the connection was lost while changes were committed. They may be stored.
	ErrOutcomeUnknown = errors.New("the outcome of the write is unknown")
	// ErrWentBack: the store holds less than this client has read from it, as after it was restored
	// from a backup. The client must start again.
	ErrWentBack = errors.New("the store has gone back to an earlier state")
	// ErrTooOld: the client has missed changes that the store no longer holds. It must start again.
	ErrTooOld = errors.New("the store no longer holds the changes since the last read")
	// ErrLeaseLost: another client of the source publishes now.
	ErrLeaseLost = errors.New("another replica publishes now")
)

// Header is what a store holds beside works.
type Header struct {
	// Identity is that of the store (docs/protocol.md, Source identity), a UUID.
	Identity string
	// Since is the highest generation that could exist when the store was made; 0: unknown.
	Since wire.Generation
	// Version is the resourceVersion of the last change.
	Version int64
	// Floor is the highest generation that a removed work can have had.
	Floor wire.Generation
}

// Record is the state of one work.
type Record struct {
	UID       types.UID
	Namespace string // the name of the cluster
	Name      string
	// Version is the resourceVersion of the work.
	Version int64
	// Removed: the work is removed, and Data is its last state. Only a [Shared] store keeps it.
	Removed bool
	// Confirmed: the agent has reported that the objects of a removed work are deleted.
	Confirmed bool
	// Data is JSON. Stores return it byte by byte as it was written.
	Data []byte
}

// ChangeFunc returns the header and the records to store, at most one for each UID. h is what the
// store holds, newer the records that other clients have written since the version that the caller
// knows, in the order of their versions. No records: nothing is stored.
type ChangeFunc func(h Header, newer []Record) (Header, []Record, error)

// Store keeps the works of one source. Open is called first and once, Close last and once; the
// methods between may be called concurrently.
type Store interface {
	// Open opens the store, or makes it with the header initial, and calls each for all works. It
	// returns the header; its Version is at least initial.Version, so that versions do not repeat
	// after the store was restored from a backup. An error of each ends Open. If Open fails, the store
	// is closed.
	Open(ctx context.Context, source wire.SourceID, initial Header, each func(Record) error) (Header, error)

	// Update runs one transaction: it calls change at most once, with the records that are newer than
	// the version after, and stores what change returns, all or nothing. When Update returns nil, the
	// records survive a crash of the machine. An error of change is returned as it is. If the error is
	// not [ErrOutcomeUnknown], nothing was stored.
	Update(ctx context.Context, after int64, change ChangeFunc) error

	// Close waits for calls that are in progress and closes the store.
	Close() error
}

// Shared is a Store that several clients of one source use at a time, one of which publishes.
type Shared interface {
	Store

	// Changes returns the header and the records that are newer than the version after, in the order
	// of their versions. Removed works are among them.
	Changes(ctx context.Context, after int64) (Header, []Record, error)

	// Follow calls changed with the version of each change that any client stores, and with 0 when
	// some may have been missed. It goes on after failures and returns nil when ctx ends. changed must
	// not block.
	Follow(ctx context.Context, changed func(version int64)) error

	// Removed returns the removed works that their agents have not confirmed.
	Removed(ctx context.Context) ([]Record, error)

	// Acquire waits until no other client holds the lease of the source, or until ctx ends, and holds
	// it. From then on, each Update of this client fails with [ErrLeaseLost] if another one has
	// acquired the lease since.
	Acquire(ctx context.Context) (Lease, error)
}

// Lease is the right to publish.
type Lease interface {
	// Hold renews the lease until ctx ends, releases it then, and returns nil. It returns
	// [ErrLeaseLost] if another client has the lease.
	Hold(ctx context.Context) error
	// Wait returns nil while no other client can have the lease. Otherwise it waits for the next
	// renewal, or until ctx ends.
	Wait(ctx context.Context) error
}
