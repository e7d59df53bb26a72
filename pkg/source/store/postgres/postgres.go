// Package postgres is a [store.Shared] in PostgreSQL 13 or later, for sources that run as several
// replicas. Several sources can share a database.
//
// Tables workwire_* are made in the first schema of the search_path, and migrated, by the first replica
// that needs them. The role of the connection needs CREATE on that schema once, and then SELECT,
// INSERT, UPDATE and DELETE on the tables.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/source/store"
	"github.com/workwire/workwire/pkg/wire"
)

// Settings of connections. A client that hangs in a transaction holds up the others no longer than
// idleInTransaction: the server ends the transaction.
const (
	idleInTransaction = 3 * time.Second
	lockTimeout       = 10 * time.Second
	connectTimeout    = 5 * time.Second
)

// keepRemoved is how long removed works are kept for replicas that have not seen it yet.
const keepRemoved = 24 * time.Hour

// Config configures a [Store].
type Config struct {
	// URL is a PostgreSQL connection string: a URL, or keywords and values. What it does not say comes
	// from the environment (PGHOST, PGPASSWORD, …), as with psql.
	URL string
	// Logger receives failures that are retried; default slog.Default().
	Logger *slog.Logger
}

// Store is a database.
type Store struct {
	config Config
	log    *slog.Logger
	pool   *pgxpool.Pool
	source string
	epoch  atomic.Int64 // of the lease that this client has acquired, 0: none
}

var _ store.Shared = (*Store)(nil)

// New returns the store in a database. It does no I/O.
func New(config Config) *Store {
	log := config.Logger
	if log == nil {
		log = slog.Default()
	}
	return &Store{config: config, log: log}
}

// Open connects, migrates the schema, and reads the works of the source.
func (s *Store) Open(ctx context.Context, source wire.SourceID, initial store.Header, each func(store.Record) error) (h store.Header, err error) {
	s.source, s.log = string(source), s.log.With("source", source)
	config, err := pgxpool.ParseConfig(s.config.URL)
	if err != nil {
		return h, fmt.Errorf("open PostgreSQL: %w", err)
	}
	config.ConnConfig.ConnectTimeout = connectTimeout
	for name, value := range map[string]time.Duration{
		"idle_in_transaction_session_timeout": idleInTransaction, "lock_timeout": lockTimeout,
	} {
		config.ConnConfig.RuntimeParams[name] = fmt.Sprint(value.Milliseconds())
	}
	if s.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return h, fmt.Errorf("open PostgreSQL: %w", err)
	}
	if err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error { return migrate(ctx, tx) }); err != nil {
		s.pool.Close()
		return h, fmt.Errorf("open PostgreSQL: %w", err)
	}
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if h, err = s.prepareSource(ctx, tx, initial); err != nil {
			return err
		}
		records, err := s.records(ctx, tx, "removed_at IS NULL", nil)
		if err != nil {
			return err
		}
		for _, r := range records {
			if err := each(r); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		s.pool.Close()
		return h, fmt.Errorf("open PostgreSQL: %w", err)
	}
	return h, nil
}

// prepareSource makes the row of the source if there is none, and raises its version, which other clients are told.
func (s *Store) prepareSource(ctx context.Context, tx pgx.Tx, initial store.Header) (store.Header, error) {
	_, err := tx.Exec(ctx, "INSERT INTO workwire_sources (id, identity, since, version, floor) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING",
		s.source, initial.Identity, int64(initial.Since), initial.Version, int64(initial.Floor))
	if err == nil {
		_, err = tx.Exec(ctx, "WITH raised AS (UPDATE workwire_sources SET version = $2 WHERE id = $1 AND version < $2 RETURNING version) "+
			"SELECT pg_notify($3, version::text) FROM raised", s.source, initial.Version, channel(s.source))
	}
	if err == nil {
		_, err = tx.Exec(ctx, "INSERT INTO workwire_leases (source, epoch, expires) VALUES ($1, 0, '-infinity') ON CONFLICT DO NOTHING", s.source)
	}
	if err != nil {
		return store.Header{}, err
	}
	h, _, err := s.header(ctx, tx, "")
	h.Floor = max(h.Floor, initial.Floor)
	return h, err
}

// row is what the row of a source has beside the header.
type row struct{ pruned, epoch int64 }

// header reads the row of the source; lock is empty or FOR UPDATE.
func (s *Store) header(ctx context.Context, tx pgx.Tx, lock string) (h store.Header, r row, err error) {
	err = tx.QueryRow(ctx, "SELECT identity, since, version, floor, pruned, epoch FROM workwire_sources WHERE id = $1 "+lock, s.source).
		Scan(&h.Identity, &h.Since, &h.Version, &h.Floor, &r.pruned, &r.epoch)
	if errors.Is(err, pgx.ErrNoRows) { // somebody restored a backup, or deleted it
		err = fmt.Errorf("%w: the source is no longer there", store.ErrWentBack)
	}
	return h, r, err
}

// records returns the records of the source for which a condition holds, which may use $2.
func (s *Store) records(ctx context.Context, tx pgx.Tx, condition string, argument any) ([]store.Record, error) {
	query := "SELECT uid, namespace, name, version, removed_at IS NOT NULL, confirmed, data::text FROM workwire_works WHERE source = $1 AND " +
		condition + " ORDER BY version"
	arguments := []any{s.source}
	if argument != nil {
		arguments = append(arguments, argument)
	}
	rows, err := tx.Query(ctx, query, arguments...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r store.Record, err error) {
		var uid, data string
		err = row.Scan(&uid, &r.Namespace, &r.Name, &r.Version, &r.Removed, &r.Confirmed, &data)
		r.UID, r.Data = types.UID(uid), []byte(data)
		return r, err
	})
}

// newer returns the records that are newer than the version after.
func (s *Store) newer(ctx context.Context, tx pgx.Tx, h store.Header, pruned, after int64) ([]store.Record, error) {
	switch {
	case h.Version < after:
		return nil, fmt.Errorf("%w: it is at version %d, this client has read %d: start again", store.ErrWentBack, h.Version, after)
	case h.Version == after:
		return nil, nil
	case pruned > after:
		return nil, fmt.Errorf("%w: removed works are forgotten up to version %d, this client has read %d: start again", store.ErrTooOld, pruned, after)
	}
	return s.records(ctx, tx, "version > $2", after)
}

// Update runs change in a transaction that holds the row of the source, so that all updates of its
// clients run one after the other.
func (s *Store) Update(ctx context.Context, after int64, change store.ChangeFunc) error {
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		return fmt.Errorf("write to PostgreSQL: %w: %w", store.ErrUnavailable, err)
	}
	err = s.update(ctx, tx, after, change)
	if err != nil {
		// The connection may be lost; then the server rolls back.
		rollback, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = tx.Rollback(rollback)
		return fmt.Errorf("write to PostgreSQL: %w", err)
	}
	return committed(tx.Commit(ctx))
}

// committed returns the error of a commit. Only an error that the server sent says that nothing was
// stored.
func committed(err error) error {
	var refused *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused), errors.Is(err, pgx.ErrTxCommitRollback):
		return fmt.Errorf("write to PostgreSQL: %w", err)
	}
	return fmt.Errorf("write to PostgreSQL: %w: %w", store.ErrOutcomeUnknown, err)
}

func (s *Store) update(ctx context.Context, tx pgx.Tx, after int64, change store.ChangeFunc) error {
	h, r, err := s.header(ctx, tx, "FOR UPDATE")
	if err != nil {
		return err
	}
	if epoch := s.epoch.Load(); epoch != 0 && epoch != r.epoch {
		return store.ErrLeaseLost
	}
	newer, err := s.newer(ctx, tx, h, r.pruned, after)
	if err != nil {
		return err
	}
	h, records, err := change(h, newer)
	if err != nil || len(records) == 0 {
		return err
	}
	batch := &pgx.Batch{}
	for _, r := range records {
		batch.Queue("INSERT INTO workwire_works (source, uid, namespace, name, version, removed_at, confirmed, data) "+
			"VALUES ($1, $2, $3, $4, $5, CASE WHEN $6 THEN clock_timestamp() END, $7, $8::text::json) "+
			"ON CONFLICT (source, uid) DO UPDATE SET version = excluded.version, removed_at = excluded.removed_at, "+
			"confirmed = excluded.confirmed, data = excluded.data",
			s.source, string(r.UID), r.Namespace, r.Name, r.Version, r.Removed, r.Confirmed, string(r.Data))
	}
	batch.Queue("UPDATE workwire_sources SET version = $2, floor = $3 WHERE id = $1", s.source, h.Version, int64(h.Floor))
	batch.Queue("SELECT pg_notify($1, $2)", channel(s.source), fmt.Sprint(h.Version))
	return tx.SendBatch(ctx, batch).Close()
}

// Changes reads the header and the newer records from one snapshot.
func (s *Store) Changes(ctx context.Context, after int64) (h store.Header, records []store.Record, err error) {
	err = pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		var r row
		if h, r, err = s.header(ctx, tx, ""); err == nil {
			records, err = s.newer(ctx, tx, h, r.pruned, after)
		}
		return err
	})
	if err != nil {
		return h, nil, fmt.Errorf("read from PostgreSQL: %w", err)
	}
	return h, records, nil
}

// Removed returns the removed works that their agents have not confirmed.
func (s *Store) Removed(ctx context.Context) (records []store.Record, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		records, err = s.records(ctx, tx, "removed_at IS NOT NULL AND NOT confirmed", nil)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read from PostgreSQL: %w", err)
	}
	return records, nil
}

// prune forgets works that were removed a day ago.
func (s *Store) prune(ctx context.Context) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, _, err := s.header(ctx, tx, "FOR UPDATE"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "WITH gone AS (DELETE FROM workwire_works WHERE source = $1 AND removed_at < clock_timestamp() - $2::interval RETURNING version) "+
			"UPDATE workwire_sources SET pruned = greatest(pruned, (SELECT max(version) FROM gone)) WHERE id = $1", s.source, keepRemoved)
		return err
	})
}

// Close closes all connections.
func (s *Store) Close() error {
	s.pool.Close()
	return nil
}
