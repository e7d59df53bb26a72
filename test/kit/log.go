package kit

import (
	"bytes"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// Logger returns a logger of all levels that writes to the test's output.
func Logger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Log keeps what is written to it. The zero Log is ready to use, from any goroutine.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write adds to the log.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// Logger returns a logger of all levels that writes to the log in slog's text format.
func (l *Log) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// String returns all that was written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Lines returns the lines that contain all texts, without their ends.
func (l *Log) Lines(texts ...string) []string {
	var lines []string
next:
	for line := range strings.Lines(l.String()) {
		for _, text := range texts {
			if !strings.Contains(line, text) {
				continue next
			}
		}
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
	return lines
}

// Await waits until the log matches pattern, a regular expression, and returns its first group, or
// the whole match if it has no group.
func (l *Log) Await(t testing.TB, pattern string) string {
	t.Helper()
	expression := regexp.MustCompile(pattern)
	var match []string
	Eventually(t, "the log has "+pattern, func() error {
		text := l.String()
		if match = expression.FindStringSubmatch(text); match == nil {
			return fmt.Errorf("it is:\n%s", text)
		}
		return nil
	})
	return match[min(1, len(match)-1)]
}
