package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// heartbeat is how long a silent connection is trusted.
	heartbeat = 10 * time.Second
	// heartbeatTimeout is how long the answer to a heartbeat may take.
	heartbeatTimeout = 5 * time.Second
	minRetry         = 250 * time.Millisecond
	maxRetry         = 5 * time.Second
)

// channel returns the name of the channel for the changes of a source.
func channel(source string) string {
	sum := sha256.Sum256([]byte(source))
	return "workwire_" + hex.EncodeToString(sum[:16])
}

// Follow listens for the notifications of Update on a connection of its own.
func (s *Store) Follow(ctx context.Context, changed func(version int64)) error {
	pause := minRetry
	for {
		err := s.listen(ctx, func(version int64) {
			pause = minRetry
			changed(version)
		})
		if ctx.Err() != nil {
			return nil
		}
		s.log.Warn("connection for notifications lost, connecting again", "error", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
		pause = min(2*pause, maxRetry)
	}
}

// listen reports changes until the connection fails.
func (s *Store) listen(ctx context.Context, changed func(version int64)) error {
	conn, err := pgx.ConnectConfig(ctx, s.pool.Config().ConnConfig)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+channel(s.source)); err != nil {
		return err
	}
	changed(0) // between the last connection and this one
	for {
		version, err := s.notification(ctx, conn)
		if err != nil {
			return err
		}
		if version > 0 {
			changed(version)
		}
	}
}

// notification waits for a notification and returns its version, or 0 if there was none and the
// connection still works.
func (s *Store) notification(ctx context.Context, conn *pgx.Conn) (int64, error) {
	waiting, cancel := context.WithTimeout(ctx, heartbeat)
	n, err := conn.WaitForNotification(waiting)
	cancel()
	switch {
	case err == nil:
		version, err := strconv.ParseInt(n.Payload, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("notification %q: %w", n.Payload, err)
		}
		return version, nil
	case ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
		return 0, err
	}
	asking, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	return 0, conn.Ping(asking)
}
