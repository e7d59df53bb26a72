package kine

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/k3s-io/kine/pkg/server"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// written is a backend to which somebody writes 11 and 12 after it was asked for how far it is, which is 10.
type written struct {
	server.Backend
	found   [][]*server.KeyValue // by each answer
	current int64
}

func (w *written) CurrentRevision(context.Context) (int64, error) { return w.current, nil }

func (w *written) List(context.Context, string, string, int64, int64, bool) (int64, []*server.KeyValue, error) {
	w.current = 12
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

func written10to12(found ...[]*server.KeyValue) atomically {
	return atomically{&written{found: found, current: 10}}
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
		asked        int64
		reaches, all int64
	}{
		"nothing":               {reaches: 10},
		"something":             {answers: [][]*server.KeyValue{at(9)}, reaches: 12, all: 1},
		"something of before":   {answers: [][]*server.KeyValue{at(12, 10)}, reaches: 12, all: 2},
		"only new, not all":     {answers: [][]*server.KeyValue{at(11), at(11, 12)}, reaches: 12, all: 2},
		"nothing at a revision": {asked: 12, reaches: 12},
		"only new, asked for":   {answers: [][]*server.KeyValue{at(11)}, asked: 11, reaches: 12, all: 1},
	} {
		if reaches, found, err := written10to12(c.answers...).List(t.Context(), "/", "", 0, c.asked, false); reaches != c.reaches || len(found) != int(c.all) || err != nil {
			t.Errorf("%s: a list of %d reaches %d, %v, want %d and %d", name, len(found), reaches, err, c.all, c.reaches)
		}
		if reaches, _, err := written10to12(c.answers...).Get(t.Context(), "a", "", 1, c.asked, false); reaches != c.reaches || err != nil {
			t.Errorf("%s: one object reaches %d, %v, want %d", name, reaches, err, c.reaches)
		}
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
	page, err := server.New(atomically{counted{}}, "unix", notifyEvery, emulated).
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
