package broker

import (
	"fmt"
	"net/http"

	"github.com/workwire/workwire/pkg/runtime/serve"
)

// handler serves /metrics, to readers with the token if there is one, /healthz and /readyz. status
// returns lines that /readyz adds although the broker is ready.
func (b *Broker) handler(metrics http.Handler, status func() string) (http.Handler, error) {
	metrics, err := serve.RequireToken(b.cfg.HTTPTokenFile, metrics, b.cfg.Logger)
	if err != nil {
		return nil, fmt.Errorf("httpTokenFile: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !b.isReady() {
			http.Error(w, "not accepting clients yet", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n" + status()))
	})
	return mux, nil
}
