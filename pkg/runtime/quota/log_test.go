package quota_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/workwire/workwire/pkg/runtime/quota"
)

func TestLimitLog(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(quota.LimitLog(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}), "cluster"))
	for range 10_000 {
		log.Warn("dropped", "cluster", "noisy")
		log.With("cluster", "derived").Error("dropped")
	}
	for range 100 {
		log.Info("heard", "cluster", "noisy")
		log.Warn("nobody's")
	}
	log.Warn("dropped", "cluster", "other")
	count := func(text string) int { return strings.Count(out.String(), text) }
	for text, most := range map[string]int{"msg=dropped cluster=noisy": 60, "cluster=derived": 60} {
		if n := count(text); n < 50 || n > most {
			t.Errorf("%d lines with %s, want 50 to %d", n, text, most)
		}
	}
	for text, want := range map[string]int{"msg=heard": 100, "nobody's": 100, "cluster=other": 1} {
		if n := count(text); n != want {
			t.Errorf("%d lines with %s, want %d", n, text, want)
		}
	}
}
