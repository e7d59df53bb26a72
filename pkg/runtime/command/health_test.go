package command_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/workwire/workwire/pkg/runtime/command"
)

func TestHealth(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			http.Error(w, "[-]broker failed: not connected", http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(server.Close)
	for name, c := range map[string]struct {
		args []string
		want string // part of the error; empty: none
	}{
		"ready":       {nil, ""},
		"not ready":   {[]string{"--url=" + server.URL + "/healthz"}, "[-]broker failed: not connected"},
		"no URL":      {[]string{"--url=127.0.0.1:8081"}, "--url"},
		"no time":     {[]string{"--timeout=0s"}, "--timeout must be more than 0, got 0s\nSee agent health --help"},
		"an argument": {[]string{"now"}, `unknown command "now" for "agent health"`},
	} {
		t.Run(name, func(t *testing.T) {
			root := &cobra.Command{Use: "agent", SilenceErrors: true}
			root.AddCommand(command.Health(server.URL + "/readyz"))
			root.SetArgs(append([]string{"health"}, c.args...))
			err := root.ExecuteContext(t.Context())
			if c.want == "" && err != nil {
				t.Error(err)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}
