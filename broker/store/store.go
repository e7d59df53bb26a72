// Package store opens the broker's database. Package session describes its content.
package store

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"

	"github.com/workwire/workwire/pkg/runtime/statestore"
)

// The buckets. Package session defines their keys and values.
const (
	Sessions statestore.Bucket = "sessions"
	Queue    statestore.Bucket = "queue"
	Messages statestore.Bucket = "messages"
	Retained statestore.Bucket = "retained"
)

// format is the version of the file's content; Open refuses any other.
const format = "workwire broker 1"

// Config configures [Open].
type Config struct {
	// Path of the database file. Its directory is created if it does not exist. Required.
	Path string
	// OnCommit is called with the number of each batch that is on disk, see [statestore.Config].
	// Required.
	OnCommit func(batch uint64)
	// Logger; default slog.Default().
	Logger *slog.Logger
}

// Open opens or creates the database. Only one process can have it open. A damaged one is set aside
// as PATH.damaged-TIME, and an empty one takes its place. Close it when done.
func Open(config Config) (*statestore.Store, error) {
	if err := os.MkdirAll(filepath.Dir(config.Path), 0o700); err != nil {
		return nil, fmt.Errorf("open broker database: %w", err)
	}
	return statestore.Open(statestore.Config{
		Name: "broker database", Path: config.Path,
		Meta:     "meta",
		Check:    func(meta *bbolt.Bucket) error { return statestore.RequireValue(meta, "format", format) },
		Buckets:  []statestore.Bucket{Sessions, Queue, Messages, Retained},
		SetAside: true, Recovery: "clients then find no session and resync",
		NoFreelistSync: true, OnCommit: config.OnCommit, Logger: config.Logger,
	})
}
