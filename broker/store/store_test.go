package store_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/workwire/workwire/broker/store"
	"github.com/workwire/workwire/test/kit"
)

func TestOpenErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "db")
	s, err := store.Open(store.Config{Path: path})
	kit.NoError(t, err)
	if _, err := store.Open(store.Config{Path: path}); err == nil || !strings.Contains(err.Error(), "another process still holds it") {
		t.Errorf("opened twice: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := store.Open(store.Config{Path: "/dev/null/db"}); err == nil || !strings.Contains(err.Error(), "open broker database") {
		t.Errorf("opened in a file: %v", err)
	}
}
