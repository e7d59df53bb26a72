package kine

import (
	"bytes"
	"strings"
	"testing"
)

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
