package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// errTimeout is the cause of a request that took too long.
var errTimeout = errors.New("the API server did not answer in time")

// WithTimeout returns a copy of config whose clients end each request after timeout, including the
// reading of its answer. Of watches only the beginning of the answer must come in time: the API
// server ends them after a time that the client asks for, and the transport ends dead connections.
func WithTimeout(config *rest.Config, timeout time.Duration) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if !isWatch(r) {
				ctx, cancel := context.WithTimeoutCause(r.Context(), timeout, errTimeout)
				return roundTrip(next, r.WithContext(ctx), timeout, cancel)
			}
			ctx, cancel := context.WithCancelCause(r.Context())
			defer time.AfterFunc(timeout, func() { cancel(errTimeout) }).Stop()
			return roundTrip(next, r.WithContext(ctx), timeout, func() { cancel(nil) })
		})
	})
	return config
}

// roundTrip makes a request whose context ends with the body of its answer.
func roundTrip(next http.RoundTripper, r *http.Request, timeout time.Duration, cancel func()) (*http.Response, error) {
	response, err := next.RoundTrip(r)
	if err != nil {
		if errors.Is(context.Cause(r.Context()), errTimeout) {
			err = fmt.Errorf("%w (%v)", errTimeout, timeout) // not that of a context: nobody has canceled it
		}
		cancel()
		return nil, err
	}
	response.Body = &body{ReadCloser: response.Body, cancel: cancel}
	return response, nil
}

func isWatch(r *http.Request) bool {
	if !strings.Contains(r.URL.RawQuery, "watch=") { // most requests need not be parsed
		return false
	}
	watch := r.URL.Query().Get("watch")
	return watch == "true" || watch == "1"
}

// body ends the request's context when it is closed.
type body struct {
	io.ReadCloser
	cancel func()
}

// Close implements [io.Closer].
func (b *body) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
