package session_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/workwire/workwire/broker/session"
	"github.com/workwire/workwire/test/kit"
)

func TestOpenStoreErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "db")
	s, err := session.OpenStore(path, nil, nil)
	kit.NoError(t, err)
	if _, err := session.OpenStore(path, nil, nil); err == nil || !strings.Contains(err.Error(), "another process still holds it") {
		t.Errorf("opened twice: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := session.OpenStore("/dev/null/db", nil, nil); err == nil || !strings.Contains(err.Error(), "open broker database") {
		t.Errorf("opened in a file: %v", err)
	}
}
