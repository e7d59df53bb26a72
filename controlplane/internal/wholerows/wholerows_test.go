package wholerows

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"testing"
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
