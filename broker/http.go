package broker

import "net/http"

// handler serves /metrics, /healthz and /readyz.
func (b *Broker) handler(metrics http.Handler) http.Handler {
	ok := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) }
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /healthz", ok)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if b.isReady() {
			ok(w, r)
		} else {
			http.Error(w, "not accepting clients yet", http.StatusServiceUnavailable)
		}
	})
	return mux
}
