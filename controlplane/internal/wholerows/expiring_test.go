package wholerows_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/k3s-io/kine/pkg/drivers/generic"

	"github.com/workwire/workwire/controlplane/internal/wholerows"
)

// listener is a driver and its connection that remembers the last query, and refuses it.
type listener struct {
	driver.Conn
	query string
	args  []driver.NamedValue
}

var errRefused = errors.New("refused")

func (l *listener) Open(string) (driver.Conn, error) { return l, nil }
func (l *listener) Close() error                     { return nil }

func (l *listener) QueryContext(_ context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	l.query, l.args = query, args
	return nil, errRefused
}

// TestOnlyExpiring: of all queries of kine for what is new, that of all since the beginning asks only for what expires.
func TestOnlyExpiring(t *testing.T) {
	var l listener
	sql.Register("listener", &l)
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	kine, err := generic.Open(ctx, &running, "listener", "", generic.ConnectionPoolConfig{}, "$", true, nil)
	if err != nil {
		t.Fatal(err)
	}
	kine.ErrCode = func(error) string { return "" }
	for name, c := range map[string]struct {
		prefix          string
		revision, limit int64
		want            bool
	}{
		"what expires": {prefix: "/%", want: true},
		"a watch":      {prefix: "/registry/secrets/%"},
		"later":        {prefix: "/%", revision: 7},
		"new":          {prefix: "%", revision: 7, limit: 500},
		"a part":       {prefix: "/%", limit: 500},
		"compaction":   {prefix: "compact_rev_key"},
	} {
		if _, err := kine.After(ctx, c.prefix, c.revision, c.limit); !errors.Is(err, errRefused) { //nolint:sqlclosecheck,rowserrcheck // there are no rows
			t.Fatalf("%s: %v", name, err)
		}
		got := wholerows.OnlyExpiring(l.query, l.args)
		if c.want == (got == l.query) {
			t.Errorf("%s: the query is %s", name, got)
		}
		if c.want && !strings.Contains(strings.Join(strings.Fields(got), " "), "kv.id > $2 AND kv.lease > 0 ORDER BY kv.id ASC") {
			t.Errorf("%s: the query is %s", name, got)
		}
	}
}
