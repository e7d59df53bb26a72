package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/workwire/workwire/pkg/source/store"
)

// migrations make the schema: entry i takes a database from version i to version i+1. They are never
// changed, only added to. A program must be able to run while its predecessor does.
var migrations = []string{
	`CREATE TABLE workwire_sources (
		id       text PRIMARY KEY,
		identity text   NOT NULL,
		since    bigint NOT NULL,
		version  bigint NOT NULL,           -- of the last change
		floor    bigint NOT NULL,
		pruned   bigint NOT NULL DEFAULT 0, -- removed works up to this version are forgotten
		epoch    bigint NOT NULL DEFAULT 0  -- of the last lease
	);
	CREATE TABLE workwire_works (
		source     text    NOT NULL REFERENCES workwire_sources,
		uid        text    NOT NULL,
		namespace  text    NOT NULL,
		name       text    NOT NULL,
		version    bigint  NOT NULL,
		removed_at timestamptz,              -- the work is removed; other replicas must see that
		confirmed  boolean NOT NULL DEFAULT false,
		data       json    NOT NULL,         -- json, not jsonb: manifests stay byte by byte as they are
		PRIMARY KEY (source, uid)
	);
	CREATE INDEX workwire_works_version ON workwire_works (source, version);
	CREATE INDEX workwire_works_removed ON workwire_works (source, removed_at) WHERE removed_at IS NOT NULL;
	CREATE TABLE workwire_leases (
		source  text PRIMARY KEY REFERENCES workwire_sources,
		epoch   bigint      NOT NULL,
		expires timestamptz NOT NULL
	)`,
}

// migrationLock is the advisory lock under which the schema is changed.
const migrationLock = 0x776f726b77697265 // "workwire"

// migrate brings the schema to the newest version. Replicas that start at the same time wait for each
// other.
func migrate(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(migrationLock)); err != nil {
		return fmt.Errorf("wait for the lock of the schema: %w", err)
	}
	if _, err := tx.Exec(ctx, "CREATE TABLE IF NOT EXISTS workwire_schema (version integer NOT NULL)"); err != nil {
		return err
	}
	var version int
	err := tx.QueryRow(ctx, "SELECT version FROM workwire_schema").Scan(&version)
	if errors.Is(err, pgx.ErrNoRows) {
		_, err = tx.Exec(ctx, "INSERT INTO workwire_schema (version) VALUES (0)")
	}
	switch {
	case err != nil:
		return err
	case version > len(migrations):
		return fmt.Errorf("%w: the schema has version %d, this program knows %d", store.ErrIncompatible, version, len(migrations))
	case version == len(migrations):
		return nil
	}
	for i, migration := range migrations[version:] {
		if _, err := tx.Exec(ctx, migration); err != nil {
			return fmt.Errorf("migrate the schema to version %d: %w", version+i+1, err)
		}
	}
	_, err = tx.Exec(ctx, "UPDATE workwire_schema SET version = $1", len(migrations))
	return err
}
