package main

import (
	"errors"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestOptions(t *testing.T) {
	required := []string{"--transport-config=t", "--source-id=ops", "--database-url-file=d"}
	everything := []string{"--tls-cert-file=c", "--tls-key-file=k", "--token-file=t"}
	for name, c := range map[string]struct {
		args []string
		want string // in the error
	}{
		"default":             {args: required},
		"nothing":             {want: "--source-id is required"},
		"loopback, IPv6":      {args: append(required, "--listen-address=[::1]:80")},
		"all addresses":       {args: append(required, "--listen-address=:80"), want: "reachable from other machines"},
		"another address":     {args: append(append(required, "--listen-address=10.0.0.1:80"), everything[:2]...), want: "--token-file"},
		"a token without TLS": {args: append(required, "--listen-address=0.0.0.0:80", "--token-file=t"), want: "--tls-cert-file"},
		"TLS and a token":     {args: append(append(required, "--listen-address=0.0.0.0:80"), everything...)},
		"half of TLS":         {args: append(required, "--tls-key-file=k"), want: "set both or neither"},
		"no port":             {args: append(required, "--listen-address=localhost"), want: "must be host:port"},
	} {
		_, err := parse(c.args, io.Discard)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	var help strings.Builder
	if _, err := parse([]string{"--help"}, &help); !errors.Is(err, flag.ErrHelp) || !strings.Contains(help.String(), "127.0.0.1:8090") {
		t.Errorf("--help: %v\n%s", err, &help)
	}
}

func TestAdmit(t *testing.T) {
	for name, c := range map[string]struct {
		host, header, token string
		admitted            bool
	}{
		"this machine":            {host: "127.0.0.1:8090", admitted: true},
		"its name":                {host: "localhost", admitted: true},
		"IPv6":                    {host: "[::1]:8090", admitted: true},
		"a name that points here": {host: "attacker.example.com:8090"},
		"the token":               {host: "works.example.com", token: "secret", header: "Bearer secret", admitted: true},
		"another token":           {host: "127.0.0.1", token: "secret", header: "Bearer other"},
		"no token":                {host: "127.0.0.1", token: "secret"},
		"part of the token":       {host: "127.0.0.1", token: "secret", header: "Bearer secre"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/v1/works", nil)
		r.Host = c.host
		if c.header != "" {
			r.Header.Set("Authorization", c.header)
		}
		if err := admit(r, c.token); (err == nil) != c.admitted {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOpenAPI: the page has each path that is served, and no other.
func TestOpenAPI(t *testing.T) {
	served := map[string]bool{"/openapi.yaml": true}
	for pattern := range (&api{}).routes() {
		_, path, _ := strings.Cut(pattern, " ")
		served[path] = true
	}
	listed := 0
	for line := range strings.Lines(string(openAPI)) {
		if path := strings.TrimSpace(line); strings.HasPrefix(line, "  /") {
			listed++
			if !served[strings.TrimSuffix(path, ":")] {
				t.Errorf("openapi.yaml has %s, which is not served", path)
			}
		}
	}
	if listed != len(served) {
		t.Errorf("openapi.yaml has %d paths, %d are served", listed, len(served))
	}
}
