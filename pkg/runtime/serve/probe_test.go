package serve_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/workwire/workwire/pkg/runtime/serve"
	"github.com/workwire/workwire/test/kit"
)

func TestProbe(t *testing.T) {
	ready := serve.Check{Name: "broker", Func: func(context.Context) error { return nil }}
	away := serve.Check{Name: "broker", Func: func(context.Context) error { return errors.New("not connected") }}
	hangs := serve.Check{Name: "broker", Func: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
	dir := t.TempDir()
	secured := serve.Options{
		Address: "127.0.0.1:0", CertFile: filepath.Join(dir, "c"), KeyFile: filepath.Join(dir, "k"), TokenFile: filepath.Join(dir, "t"),
	}
	writeCertificate(t, secured.CertFile, secured.KeyFile, 1)
	write(t, secured.TokenFile, "secret")

	for name, c := range map[string]struct {
		scheme  string
		options serve.Options
		check   serve.Check
		want    string // part of the error; empty: none
	}{
		"ready":                    {"http", serve.Options{Address: "127.0.0.1:0"}, ready, ""},
		"not ready":                {"http", serve.Options{Address: "127.0.0.1:0"}, away, "returned 503:\n[-]broker failed: not connected\nreadyz check failed"},
		"with TLS and token":       {"https", secured, ready, ""},
		"not ready, TLS and token": {"https", secured, away, "returned 503:\nreadyz check failed"},
		"no answer in time":        {"http", serve.Options{Address: "127.0.0.1:0"}, hangs, "context deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := start(t, serve.Config{Options: c.options, Ready: []serve.Check{c.check}})
			patience := kit.Patience
			if name == "no answer in time" {
				patience = 50 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			err := serve.Probe(ctx, c.scheme+"://"+address+"/readyz")
			if c.want == "" && err != nil {
				t.Error(err)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
	if err := serve.Probe(t.Context(), "http://127.0.0.1:1/readyz"); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("nobody listens: %v", err)
	}
}
