package kine

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/k3s-io/kine/pkg/server"
)

// written is a backend to which somebody writes 12 after it was found to be empty, or not, at revision 10.
type written struct {
	server.Backend
	found   []*server.KeyValue
	current int64
}

func (w *written) CurrentRevision(context.Context) (int64, error) { return w.current, nil }

func (w *written) List(context.Context, string, string, int64, int64, bool) (int64, []*server.KeyValue, error) {
	w.current = 12
	return w.current, w.found, nil
}

func (w *written) Get(context.Context, string, string, int64, int64, bool) (int64, *server.KeyValue, error) {
	w.current = 12
	if len(w.found) == 0 {
		return w.current, nil, nil
	}
	return w.current, w.found[0], nil
}

// TestEmptyAnswers: an answer that is empty reaches to before it was asked for, others where kine says.
func TestEmptyAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		found        []*server.KeyValue
		asked, wants int64
	}{
		"nothing":               {wants: 10},
		"something":             {found: []*server.KeyValue{{Key: "a"}}, wants: 12},
		"nothing at a revision": {asked: 12, wants: 12},
	} {
		if got, _, err := (atomically{&written{found: c.found, current: 10}}).List(t.Context(), "/", "", 0, c.asked, false); got != c.wants || err != nil {
			t.Errorf("%s: a list reaches %d, %v, want %d", name, got, err, c.wants)
		}
		if got, _, err := (atomically{&written{found: c.found, current: 10}}).Get(t.Context(), "a", "", 1, c.asked, false); got != c.wants || err != nil {
			t.Errorf("%s: one object reaches %d, %v, want %d", name, got, err, c.wants)
		}
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
