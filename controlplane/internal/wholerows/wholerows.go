// Package wholerows is a driver of database/sql that gives kine whole results, and rows in the order of
// their ids.
//
// kine reads rows until there are no more and does not ask [sql.Rows.Err] why there are no more. With
// other drivers, a list whose connection breaks is shorter than it should be, and nobody notices: an
// API server that starts at that moment serves the objects of the first half as all there are, and a
// hub and its agents believe it. This driver reads the whole result of a query before the query
// returns, so that an error in the middle of a result is an error of the query.
//
// kine takes the ids of rows for revisions, and the highest for how far a list reaches. But a row becomes
// visible when its transaction ends, and PostgreSQL has given it its id before: of two writes at a time, the
// second may be visible first. Who listed just then and watched from there on would never learn of
// the first. So lists and watches wait for the writes that have begun, and those that come wait for them; and a write
// returns its id, which kine takes for how far an empty list reaches, once no other one can have a lower id. One process of kine writes to
// a database.
//
// The driver has the name "pgx", under which kine looks for its own, and uses pgx under its other name.
// It must be registered first, and it is: packages without dependencies are initialized in the order
// of their paths, and this one imports only a part of the standard library that pgx needs too. pgx
// leaves a name alone that is taken. [Check] reports whether it worked.
package wholerows

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	name      = "pgx"
	innerName = "pgx/v5"
)

func init() {
	if !slices.Contains(sql.Drivers(), name) {
		sql.Register(name, wholeDriver{})
	}
}

// Check returns an error if another driver has the name that kine uses.
func Check() error {
	db, err := sql.Open(name, "")
	if err != nil {
		return err
	}
	defer db.Close()
	if _, ok := db.Driver().(wholeDriver); !ok {
		return errors.New("the driver of the database is not the one that reads whole results: this is a bug of controlplane")
	}
	return nil
}

type wholeDriver struct{}

// Open opens a connection of pgx.
func (wholeDriver) Open(dsn string) (driver.Conn, error) {
	db, err := sql.Open(innerName, "")
	if err != nil {
		return nil, err
	}
	defer db.Close() // it has no connections
	inner, err := db.Driver().Open(dsn)
	if err != nil {
		return nil, err
	}
	c, ok := inner.(conn)
	if !ok {
		inner.Close()
		return nil, errors.New("a connection of pgx lacks methods: this is a bug of controlplane")
	}
	return wholeConn{c}, nil
}

// conn is what database/sql uses of a connection of pgx.
type conn interface {
	driver.Conn
	driver.ConnPrepareContext
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.NamedValueChecker
	driver.SessionResetter
}

type wholeConn struct{ conn }

const (
	// patience is how long a query may take, as long as a request to the API server. A server that went away without a
	// word would be awaited as long as TCP does, a quarter of an hour, and with it all who wait for the query.
	patience = time.Minute
	// answer is how long a connection that is used again may take to say that it is there.
	answer = 10 * time.Second
)

// order is held by many writes, or by one query that needs the rows below the highest id.
var order sync.RWMutex

// QueryContext returns all rows, or the error that ends them.
func (c wholeConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	switch {
	case isInsert(query):
		defer writes.begin()(ctx)
		order.RLock()
		defer order.RUnlock()
	case isOfMany(query, args):
		Count(ctx)
		order.Lock()
		defer order.Unlock()
	}
	rows, err := c.conn.QueryContext(ctx, onlyExpiring(query, args), args)
	if err != nil {
		return nil, err
	}
	return readAll(rows)
}

type queries struct{}

// Counting returns a context, and how many queries of lists and watches were made with it. The count is safe for concurrent use.
func Counting(ctx context.Context) (context.Context, *atomic.Int32) {
	n := new(atomic.Int32)
	return context.WithValue(ctx, queries{}, n), n
}

// Count counts a query with a context of [Counting]. The driver calls it for each.
func Count(ctx context.Context) {
	if n, ok := ctx.Value(queries{}).(*atomic.Int32); ok {
		n.Add(1)
	}
}

// ResetSession returns an error if the connection cannot be used again.
func (c wholeConn) ResetSession(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answer)
	defer cancel()
	return c.conn.ResetSession(ctx)
}

// writes are the inserts that have begun and not ended.
var writes = flights{running: make(map[chan struct{}]struct{})}

type flights struct {
	mu      sync.Mutex
	running map[chan struct{}]struct{} // guarded by mu; closed at the end of each
}

// begin returns what to call at the end of a write: it waits for the others that run, or for the end of ctx.
func (f *flights) begin() func(context.Context) {
	own := make(chan struct{})
	f.mu.Lock()
	f.running[own] = struct{}{}
	f.mu.Unlock()
	return func(ctx context.Context) {
		close(own)
		f.mu.Lock()
		delete(f.running, own)
		others := slices.Collect(maps.Keys(f.running))
		f.mu.Unlock()
		for _, other := range others {
			select {
			case <-other:
			case <-ctx.Done():
				return
			}
		}
	}
}

// isInsert reports whether a query makes a row with a new id, which it returns.
func isInsert(query string) bool {
	return strings.HasPrefix(strings.TrimSpace(query), "INSERT INTO kine(name")
}

// isOfMany reports whether a query is of a list or a watch, of which the first argument is the pattern of names: that of a
// single object has no wildcard at its end. Without arguments it asks for the highest id, where watches begin.
func isOfMany(query string, args []driver.NamedValue) bool {
	if len(args) == 0 {
		return strings.Contains(query, "MAX(rkv.id)")
	}
	pattern, ok := args[0].Value.(string)
	return ok && strings.HasSuffix(pattern, "%") && strings.HasPrefix(strings.TrimSpace(query), "SELECT")
}

// onlyExpiring returns the query with which kine looks at each start for what expires, so that it returns only that: kine drops
// all others, which are the whole table with all values. It returns any other query as it is.
func onlyExpiring(query string, args []driver.NamedValue) string {
	if len(args) != 2 || args[0].Value != "/%" || args[1].Value != int64(0) {
		return query
	}
	start, limit, ok := strings.Cut(query, "ORDER BY kv.id ASC")
	if !ok || strings.TrimSpace(limit) != "" || !strings.HasSuffix(strings.TrimSpace(start), "kv.id > $2") {
		return query
	}
	return start + "AND kv.lease > 0 ORDER BY kv.id ASC"
}

func readAll(rows driver.Rows) (driver.Rows, error) {
	whole := &wholeRows{columns: slices.Clone(rows.Columns())}
	for {
		row := make([]driver.Value, len(whole.columns))
		err := rows.Next(row)
		if err == io.EOF { //nolint:errorlint // an error of the network may wrap io.EOF
			break
		}
		if err != nil {
			rows.Close()
			return nil, err
		}
		for i, value := range row {
			if data, ok := value.([]byte); ok { // valid until the next call
				row[i] = bytes.Clone(data)
			}
		}
		whole.rows = append(whole.rows, row)
	}
	if err := rows.Close(); err != nil {
		return nil, err
	}
	return whole, nil
}

// wholeRows is a result that has been read.
type wholeRows struct {
	columns []string
	rows    [][]driver.Value
}

// Columns returns the names of the columns.
func (r *wholeRows) Columns() []string { return r.columns }

// Close forgets the rows.
func (r *wholeRows) Close() error {
	r.rows = nil
	return nil
}

// Next copies the next row to dest, and returns io.EOF after the last one.
func (r *wholeRows) Next(dest []driver.Value) error {
	if len(r.rows) == 0 {
		return io.EOF
	}
	copy(dest, r.rows[0])
	r.rows[0] = nil
	r.rows = r.rows[1:]
	return nil
}
