package session

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"

	"github.com/workwire/workwire/pkg/runtime/statestore"
)

// The buckets of the database; persist.go has their keys and values.
const (
	Sessions statestore.Bucket = "sessions"
	Queue    statestore.Bucket = "queue"
	Messages statestore.Bucket = "messages"
	Retained statestore.Bucket = "retained"
)

// format is the version of the file's content; OpenStore refuses any other.
const format = "workwire broker 1"

// OpenStore opens or creates the database at path, whose directory is created if it does not exist. Only one process can have it
// open. A damaged one is set aside as PATH.damaged-TIME, and an empty one takes its place. onCommit is called with the number of
// each batch that is on disk. Close it when done.
func OpenStore(path string, onCommit func(batch uint64), logger *slog.Logger) (*statestore.Store, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("open broker database: %w", err)
	}
	return statestore.Open(statestore.Config{
		Name: "broker database", Path: path,
		Meta:     "meta",
		Check:    func(meta *bbolt.Bucket) error { return statestore.RequireValue(meta, "format", format) },
		Buckets:  []statestore.Bucket{Sessions, Queue, Messages, Retained},
		SetAside: true, Recovery: "clients then find no session and resync",
		NoFreelistSync: true, OnCommit: onCommit, Logger: logger,
	})
}
