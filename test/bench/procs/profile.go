package procs

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// Profile takes a CPU profile of the program that serves address, for d, into
// dir/name-cpu.pprof. The function it gives waits for its end. A failure is only
// told: the figures do not depend on it.
func Profile(ctx context.Context, address, dir, name string, d time.Duration, tell func(format string, args ...any)) (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		url := fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", address, max(1, int(d.Seconds())))
		if err := Fetch(ctx, url, dir, name+"-cpu"); err != nil {
			tell("no profile: %v", err)
		}
	}()
	return func() { <-done }
}

// Fetch saves what url answers in dir/name.pprof.
func Fetch(ctx context.Context, url, dir, name string) error {
	body, err := Get(ctx, url)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".pprof"), body, 0o600)
}

// Get gives what url answers.
func Get(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %s", url, response.Status, body)
	}
	return body, err
}
