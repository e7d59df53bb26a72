package serve

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// checkTimeout limits the time of all checks of a request, so that a check that hangs does not look
// like a process that hangs.
const checkTimeout = 5 * time.Second

// Check is one named condition of health.
type Check struct {
	// Name is the name of the check in the response, such as "broker"; required.
	Name string
	// Func returns nil if the condition holds, else an error that tells an operator the cause and
	// what to do; required. It must be safe for concurrent use, and return when its context ends,
	// after at most 5 s.
	Func func(context.Context) error
}

// health responds with 200 if all checks pass, else with 503. The body has a line for each check if
// one fails or the query has "verbose", unless the caller is not authorized.
func health(name string, checks []Check, authorized func(*http.Request) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
		defer cancel()
		lines, failed := report(ctx, checks)
		detailed := authorized(r)
		if !detailed {
			lines = ""
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		switch {
		case failed:
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintf(w, "%s%s check failed\n", lines, name)
		case r.URL.Query().Has("verbose") && detailed:
			fmt.Fprintf(w, "%s%s check passed\n", lines, name)
		default:
			fmt.Fprint(w, "ok")
		}
	})
}

// report runs the checks in order. It returns a line for each, and whether any has failed.
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
