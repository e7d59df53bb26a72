// Package baseline measures the surroundings alone: the API server with the same writes that an
// agent or a hub makes, and the broker with the same messages.
//
// The writes are plain HTTP requests with bodies that were encoded before, and of the answers only
// what the next request needs is read: a client can hardly cost less.
package baseline

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
)

// Clients is how many work in parallel.
const Clients = 16

// API writes to an API server. Its methods may be called from any goroutine.
type API struct {
	host string
	http *http.Client
}

// NewAPI makes an API for config.
func NewAPI(config *rest.Config) (*API, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return &API{host: config.Host, http: client}, nil
}

// Content types of patches.
const (
	MergePatch = "application/merge-patch+json"
	JSONPatch  = "application/json-patch+json"
)

// Answer is what is read of an API server's answer.
type Answer struct {
	Metadata struct {
		UID             string `json:"uid"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
}

// Write makes one request; what is the content type of a patch, else empty.
func (a *API) Write(ctx context.Context, method, path, what string, body []byte) (Answer, error) {
	var read Answer
	request, err := http.NewRequestWithContext(ctx, method, a.host+path, bytes.NewReader(body))
	if err != nil {
		return read, err
	}
	if what == "" {
		what = "application/json"
	}
	request.Header.Set("Content-Type", what)
	request.Header.Set("Accept", "application/json")
	response, err := a.http.Do(request)
	if err != nil {
		return read, err
	}
	answer, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		return read, err
	}
	if response.StatusCode >= 300 {
		return read, fmt.Errorf("%s %s: %s: %s", method, path, response.Status, answer)
	}
	return read, json.Unmarshal(answer, &read)
}

// Each calls do for 0 to n-1 from [Clients] goroutines, until one of them fails, and returns how
// long that took.
func Each(n int, do func(i int) error) (time.Duration, error) {
	var next atomic.Int64
	var group errgroup.Group
	start := time.Now()
	for range Clients {
		group.Go(func() error {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				if err := do(int(i)); err != nil {
					next.Store(int64(n))
					return err
				}
			}
			return nil
		})
	}
	err := group.Wait()
	return time.Since(start), err
}
