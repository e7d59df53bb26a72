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
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &timeoutTransport{next: next, timeout: timeout} })
	return config
}

type timeoutTransport struct {
	next    http.RoundTripper
	timeout time.Duration
}

// RoundTrip implements [http.RoundTripper].
func (t *timeoutTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if isWatch(r) {
		return t.watch(r)
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), t.timeout, errTimeout)
	response, err := t.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		if errors.Is(context.Cause(ctx), errTimeout) {
			err = fmt.Errorf("%w (%v): %w", errTimeout, t.timeout, err)
		}
		cancel()
		return nil, err
	}
	response.Body = &body{ReadCloser: response.Body, cancel: cancel}
	return response, nil
}

// watch ends a watch whose answer does not begin in time.
func (t *timeoutTransport) watch(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	timer := time.AfterFunc(t.timeout, func() { cancel(errTimeout) })
	response, err := t.next.RoundTrip(r.WithContext(ctx))
	timer.Stop()
	if err != nil {
		if errors.Is(context.Cause(ctx), errTimeout) {
			err = fmt.Errorf("%w (%v)", errTimeout, t.timeout) // not that of a context: nobody has canceled it
		}
		cancel(nil)
		return nil, err
	}
	response.Body = &body{ReadCloser: response.Body, cancel: func() { cancel(nil) }}
	return response, nil
}

func isWatch(r *http.Request) bool {
	if !strings.Contains(r.URL.RawQuery, "watch=") { // most requests need not be parsed
		return false
	}
	watch := r.URL.Query().Get("watch")
	return watch == "true" || watch == "1"
}

// WrappedRoundTripper returns the transport below, for client-go.
func (t *timeoutTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

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
