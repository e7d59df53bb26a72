package wholerows

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
)

// rows returns the rows 1, 2, … as bytes in one buffer, as a driver may, and then end.
type rows struct {
	n      int
	end    error
	buffer [1]byte
	closed error
}

func (r *rows) Columns() []string { return []string{"value"} }
func (r *rows) Close() error      { return r.closed }

func (r *rows) Next(dest []driver.Value) error {
	if r.n == 0 {
		return r.end
	}
	r.buffer[0]++
	r.n--
	dest[0] = r.buffer[:]
	return nil
}

func TestReadAll(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		rows rows
		err  error
	}{
		"no rows":                        {rows{end: io.EOF}, nil},
		"rows":                           {rows{n: 3, end: io.EOF}, nil},
		"an error in place of rows":      {rows{end: broken}, broken},
		"an error after rows":            {rows{n: 3, end: broken}, broken},
		"an end of the network in rows":  {rows{n: 3, end: fmt.Errorf("reading: %w", io.EOF)}, io.EOF},
		"an error that only Close gives": {rows{n: 3, end: io.EOF, closed: broken}, broken},
	} {
		t.Run(name, func(t *testing.T) {
			want := c.rows.n
			whole, err := readAll(&c.rows)
			if !errors.Is(err, c.err) {
				t.Fatalf("error %v, want %v", err, c.err)
			}
			if err != nil {
				return
			}
			value := make([]driver.Value, 1)
			for i := range want {
				if err := whole.Next(value); err != nil || value[0].([]byte)[0] != byte(i+1) {
					t.Errorf("row %d is %v, %v", i, value, err)
				}
			}
			if err := whole.Next(value); err != io.EOF { //nolint:errorlint // the contract of drivers
				t.Errorf("the end is %v", err)
			}
		})
	}
}

// silent is a connection to a server that is gone without a word.
type silent struct{ conn }

func (silent) QueryContext(ctx context.Context, _ string, _ []driver.NamedValue) (driver.Rows, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (silent) ResetSession(ctx context.Context) error {
	<-ctx.Done()
	return driver.ErrBadConn
}

// alive is a connection to a server that answers.
type alive struct{ conn }

func (alive) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	return &rows{n: 1, end: io.EOF}, nil
}

// kine asks for what is new without a limit of its own.
func TestASilentServerHoldsUpNobodyForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead, ctx := wholeConn{silent{}}, context.WithoutCancel(t.Context())
		if _, err := dead.QueryContext(ctx, "SELECT * FROM kine", []driver.NamedValue{{Value: "%"}}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a query that nobody answers: %v", err)
		}
		if _, err := (wholeConn{alive{}}).QueryContext(ctx, "INSERT INTO kine(name", nil); err != nil {
			t.Errorf("a write over another connection: %v", err)
		}
		if err := dead.ResetSession(ctx); !errors.Is(err, driver.ErrBadConn) {
			t.Errorf("a connection that is used again: %v", err)
		}
	})
}
