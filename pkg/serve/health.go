package serve

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// checkTimeout bounds each answer: a check that hangs must not look like a
// process that hangs.
const checkTimeout = 5 * time.Second

// Check is one named condition of health.
type Check struct {
	// Name stands in the answer, such as "broker"; required.
	Name string
	// Func returns nil while the condition holds, else what is wrong and what to
	// do, in words fit to be read by a person. It may be called at any time from
	// any goroutine and must return when its context ends, after 5 s at most.
	Func func(context.Context) error
}

// health answers 200 while all checks pass, 503 otherwise, with one line a check
// when one fails or the query has "verbose". A caller who is not authorized is
// told the outcome only.
func health(name string, checks []Check, authorized func(*http.Request) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
		defer cancel()
		lines, failed := report(ctx, checks)
		detailed := authorized(r)
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		switch {
		case failed && detailed:
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintf(w, "%s%s check failed\n", lines, name)
		case failed:
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintf(w, "%s check failed\n", name)
		case r.URL.Query().Has("verbose") && detailed:
			fmt.Fprintf(w, "%s%s check passed\n", lines, name)
		default:
			fmt.Fprint(w, "ok")
		}
	})
}

// report runs the checks in order: one line each, and whether any failed.
func report(ctx context.Context, checks []Check) (lines string, failed bool) {
	var b strings.Builder
	for _, check := range checks {
		if err := check.Func(ctx); err != nil {
			failed = true
			fmt.Fprintf(&b, "[-]%s failed: %s\n", check.Name, strings.ReplaceAll(err.Error(), "\n", "; "))
		} else {
			fmt.Fprintf(&b, "[+]%s ok\n", check.Name)
		}
	}
	return b.String(), failed
}
