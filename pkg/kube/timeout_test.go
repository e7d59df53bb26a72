package kube_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/pkg/kube"
)

func TestWithTimeout(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/quick":
		case "/half":
			w.Header().Set("Content-Length", "10")
			_, _ = w.Write([]byte("half"))
			w.(http.Flusher).Flush()
			fallthrough
		default:
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL}
	client, err := rest.HTTPClientFor(kube.WithTimeout(config, 50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) (string, error) {
		response, err := client.Get(server.URL + path)
		if err != nil {
			return "", err
		}
		defer func() { _ = response.Body.Close() }()
		var text strings.Builder
		buffer := make([]byte, 16)
		for {
			n, err := response.Body.Read(buffer)
			text.Write(buffer[:n])
			if err != nil {
				return text.String(), err
			}
		}
	}
	if _, err := get("/hangs"); err == nil || !strings.Contains(err.Error(), "the API server did not answer in time (50ms)") {
		t.Errorf("a request that hangs: %v", err)
	}
	if text, err := get("/half"); text != "half" || err == nil || err.Error() == "EOF" {
		t.Errorf("an answer that hangs: %q, %v", text, err)
	}
	if _, err := get("/quick"); err == nil || err.Error() != "EOF" {
		t.Errorf("a quick request: %v", err)
	}
	time.AfterFunc(200*time.Millisecond, func() { close(release) })
	if _, err := get("/hangs?watch=true"); err == nil || err.Error() != "EOF" {
		t.Errorf("a watch: %v", err)
	}
	if config.WrapTransport != nil {
		t.Error("the configuration was changed")
	}
}
