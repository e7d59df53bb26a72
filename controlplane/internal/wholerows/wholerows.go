// Package wholerows is a driver of database/sql that reads the whole result of a query before the query
// returns, so that an error in the middle of a result is an error of the query.
//
// kine reads rows until there are no more and does not ask [sql.Rows.Err] why there are no more. With
// other drivers, a list whose connection breaks is shorter than it should be, and nobody notices: an
// API server that starts at that moment serves the objects of the first half as all there are, and a
// hub and its agents believe it.
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
	"slices"
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

// QueryContext returns all rows, or the error that ends them.
func (c wholeConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.conn.QueryContext(ctx, query, args)
	if err != nil {
		return nil, err
	}
	return readAll(rows)
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
