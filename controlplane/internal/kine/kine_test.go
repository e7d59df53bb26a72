package kine

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/k3s-io/kine/pkg/server"
	"github.com/sirupsen/logrus"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/workwire/workwire/controlplane/internal/wholerows"
)

// written is a backend to which somebody writes 11 and 12 after it was asked for how far it is, which is 10.
type written struct {
	server.Backend
	found   [][]*server.KeyValue // by each answer
	queries int                  // of the first list: 2 if there was nothing at first
	current int64
}

func (w *written) CurrentRevision(context.Context) (int64, error) { return w.current, nil }

func (w *written) List(ctx context.Context, _, _ string, _, _ int64, _ bool) (int64, []*server.KeyValue, error) {
	w.current = 12
	for ; w.queries > 0; w.queries-- {
		wholerows.Count(ctx)
	}
	if len(w.found) == 0 {
		return w.current, nil, nil
	}
	found := w.found[0]
	w.found = w.found[1:]
	return w.current, found, nil
}

func (w *written) Get(ctx context.Context, _, _ string, _, _ int64, _ bool) (int64, *server.KeyValue, error) {
	reached, found, err := w.List(ctx, "", "", 0, 0, false)
	if len(found) == 0 {
		return reached, nil, err
	}
	return reached, found[0], err
}

func written10to12(queries int, found ...[]*server.KeyValue) *atomically {
	return &atomically{Backend: &written{found: found, queries: queries, current: 10}}
}

// TestAnswersAreAll: a list that reaches a revision has all that was written up to there, also where there was nothing when
// it was asked for.
func TestAnswersAreAll(t *testing.T) {
	at := func(revisions ...int64) (found []*server.KeyValue) {
		for _, revision := range revisions {
			found = append(found, &server.KeyValue{ModRevision: revision})
		}
		return found
	}
	for name, c := range map[string]struct {
		answers      [][]*server.KeyValue
		queries      int
		asked        int64
		reaches, all int64
		one          int64 // reached by the first object alone
	}{
		"nothing":               {queries: 2, reaches: 10, one: 10},
		"something":             {queries: 1, answers: [][]*server.KeyValue{at(9)}, reaches: 12, all: 1, one: 10},
		"something new":         {queries: 1, answers: [][]*server.KeyValue{at(11, 12)}, reaches: 12, all: 2, one: 11},
		"only what is gone":     {queries: 2, answers: [][]*server.KeyValue{at(9)}, reaches: 12, one: 10},
		"only new, not all":     {queries: 2, answers: [][]*server.KeyValue{at(11), at(11, 12)}, reaches: 12, all: 2, one: 11},
		"nothing at a revision": {queries: 1, asked: 12, reaches: 12, one: 12},
		"only new, asked for":   {queries: 1, answers: [][]*server.KeyValue{at(11)}, asked: 11, reaches: 12, all: 1, one: 12},
	} {
		if reaches, found, err := written10to12(c.queries, c.answers...).List(t.Context(), "/", "", 0, c.asked, false); reaches != c.reaches || len(found) != int(c.all) || err != nil {
			t.Errorf("%s: a list of %d reaches %d, %v, want %d and %d", name, len(found), reaches, err, c.all, c.reaches)
		}
		if reaches, _, err := written10to12(c.queries, c.answers...).Get(t.Context(), "a", "", 1, c.asked, false); reaches != c.one || err != nil {
			t.Errorf("%s: one object reaches %d, %v, want %d", name, reaches, err, c.one)
		}
	}
}

// fallen is a backend in which writes 11 and 12 ran at a time, and 11 returned last. 12 deleted its only object, of 9.
type fallen struct{ server.Backend }

func (fallen) CurrentRevision(context.Context) (int64, error) { return 11, nil }

func (fallen) Create(context.Context, string, []byte, int64) (int64, error) { return 11, nil }

func (fallen) Delete(context.Context, string, int64) (int64, *server.KeyValue, bool, error) {
	return 12, &server.KeyValue{Key: "/a/1", ModRevision: 9}, true, nil
}

func (fallen) Update(context.Context, string, []byte, int64, int64) (int64, *server.KeyValue, bool, error) {
	return 13, &server.KeyValue{Key: "/b", ModRevision: 13}, false, nil
}

func (fallen) Get(_ context.Context, _, _ string, _, revision int64, _ bool) (int64, *server.KeyValue, error) {
	if revision > 11 {
		return 0, nil, server.ErrFutureRev
	}
	return 11, nil, nil
}

func (fallen) List(ctx context.Context, _, _ string, _, revision int64, _ bool) (int64, []*server.KeyValue, error) {
	if revision > 11 {
		return 11, nil, server.ErrFutureRev
	}
	wholerows.Count(ctx)
	wholerows.Count(ctx)                                              // there was nothing at first
	return 12, []*server.KeyValue{{Key: "/a/1", ModRevision: 9}}, nil // as of 11
}

// TestAcknowledgedWritesAreReached: what is asked for after a write was acknowledged is of its revision or later, whichever write
// returned last.
func TestAcknowledgedWritesAreReached(t *testing.T) {
	b := &atomically{Backend: fallen{}}
	if _, _, _, err := b.Delete(t.Context(), "/a/1", 9); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Create(t.Context(), "/b", nil, 0); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := b.Update(t.Context(), "/b", nil, 10, 0); err != nil { // is refused: others may be under way below 13
		t.Fatal(err)
	}
	if current, err := b.CurrentRevision(t.Context()); current != 12 || err != nil {
		t.Errorf("the current revision is %d, %v, want 12", current, err)
	}
	for _, revision := range []int64{0, 12} {
		if reached, kv, err := b.Get(t.Context(), "/none", "", 1, revision, false); reached != 12 || kv != nil || err != nil {
			t.Errorf("nothing at %d reaches %d, %v, %v, want 12", revision, reached, kv, err)
		}
		if reached, found, err := b.List(t.Context(), "/a/", "", 0, revision, false); reached != 12 || len(found) > 0 || err != nil {
			t.Errorf("a list of %d objects at %d reaches %d, %v, want nothing and 12", len(found), revision, reached, err)
		}
	}
	if _, _, err := b.List(t.Context(), "/a/", "", 0, 13, false); !errors.Is(err, server.ErrFutureRev) {
		t.Errorf("a list at a revision that nobody was told: %v", err)
	}
}

// counted is a backend to which somebody writes between a list and the count of the rest.
type counted struct{ server.Backend }

func (counted) CurrentRevision(context.Context) (int64, error) { return 12, nil }

func (counted) List(context.Context, string, string, int64, int64, bool) (int64, []*server.KeyValue, error) {
	return 12, []*server.KeyValue{{Key: "/a/1", ModRevision: 4}, {Key: "/a/2", ModRevision: 5}, {Key: "/a/3", ModRevision: 6}}, nil
}

func (counted) Count(context.Context, string, string, int64) (int64, int64, error) { return 15, 3, nil }

// TestPageReachesItsObjects: a page is of the revision of its objects, and not of that at which the rest was counted.
func TestPageReachesItsObjects(t *testing.T) {
	page, err := server.New(&atomically{Backend: counted{}}, "unix", notifyEvery, emulated).
		Range(t.Context(), &etcdserverpb.RangeRequest{Key: []byte("/a/"), RangeEnd: []byte("/a0"), Limit: 2})
	if err != nil {
		t.Fatal(err)
	}
	if page.Header.Revision != 12 || page.Count != 3 || len(page.Kvs) != 2 || !page.More {
		t.Errorf("the page is %v, want 2 of 3 objects at revision 12", page)
	}
}

func TestSecrets(t *testing.T) {
	for endpoint, want := range map[string][]string{
		"postgres://hub:s3cret@db.example/hub":          {"s3cret"},
		"postgres://hub:s3%2Fcr%21et@db.example/hub":    {"s3/cr!et", "s3%2Fcr%21et"},
		"postgres://hub@db.example/hub":                 nil,
		"postgres:///hub?host=/run/postgresql&user=hub": nil,
	} {
		got := secrets(endpoint)
		for _, secret := range want {
			if !strings.Contains(strings.Join(got, " "), secret) {
				t.Errorf("%s: %q lacks %q", endpoint, got, secret)
			}
		}
		if len(want) == 0 && len(got) > 0 {
			t.Errorf("%s: %q", endpoint, got)
		}
	}
}

func TestRefusedEndpointIsNotLogged(t *testing.T) {
	var log bytes.Buffer
	if status := Run(strings.NewReader("postgres://hub:s3%zzcret@db.example/hub"), &log); status != 1 {
		t.Errorf("status %d", status)
	}
	if text := log.String(); !strings.Contains(text, "percent-encoded") || strings.Contains(text, "cret") {
		t.Errorf("the log is %s", text)
	}
}

// TestLogHasNoObjects: of a request that failed, its key and the cause are logged.
func TestLogHasNoObjects(t *testing.T) {
	var log bytes.Buffer
	logger := logrus.New()
	logger.SetOutput(&log)
	logger.SetFormatter(redactor{&logrus.TextFormatter{DisableColors: true}, []string{"pass/word"}})
	key, value, cause := []byte("/registry/secrets/a/b"), []byte(`key:"x": s3cret`+strings.Repeat("s3cret", 1000)), errors.New("failed: \"conn\" closed")
	put := &etcdserverpb.PutRequest{Key: key, Value: value}
	logger.Errorf("error in txn %s: %v", &etcdserverpb.TxnRequest{
		Compare: []*etcdserverpb.Compare{{
			Target: etcdserverpb.Compare_MOD, Key: key, TargetUnion: &etcdserverpb.Compare_ModRevision{ModRevision: 7},
		}},
		Success: []*etcdserverpb.RequestOp{{Request: &etcdserverpb.RequestOp_RequestPut{RequestPut: put}}},
		Failure: []*etcdserverpb.RequestOp{{Request: &etcdserverpb.RequestOp_RequestRange{RequestRange: &etcdserverpb.RangeRequest{Key: key}}}},
	}, cause)
	logger.Errorf("error in put %s: %v", put, cause)
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "s3cret") || !strings.Contains(line, "/registry/secrets/a/b") || !strings.Contains(line, `failed: \"conn\" closed`) || len(line) > 200 {
			t.Errorf("logged %s", line)
		}
	}
	logger.Error(`error in put key:"a" value:"s3cret`) // not as kine has it: where the request ends is not known
	if strings.Contains(log.String(), "s3cret") {
		t.Errorf("logged %s", log.String())
	}
	log.Reset()
	logger.Error(strings.Repeat("é", maxMessage/2-2) + "pass/word")
	if text := log.String(); len(text) > maxMessage+100 || strings.Contains(text, "pass") || !strings.Contains(text, "éé…") {
		t.Errorf("logged %d bytes: %s", len(text), text)
	}
	log.Reset()
	logger.Error(strings.Repeat("aé", maxMessage))
	if text := log.String(); len(text) > maxMessage+100 || !utf8.ValidString(text) {
		t.Errorf("logged %d bytes: %s", len(text), text)
	}
}
