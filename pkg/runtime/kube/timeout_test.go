package kube_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/pkg/runtime/kube"
	"github.com/workwire/workwire/test/kit"
)

func TestWithTimeout(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/quick":
		case "/watch":
			w.(http.Flusher).Flush()
			select {
			case <-time.After(200 * time.Millisecond):
			case <-r.Context().Done():
			}
		case "/half":
			w.Header().Set("Content-Length", "10")
			_, _ = w.Write([]byte("half"))
			w.(http.Flusher).Flush()
			fallthrough
		default:
			<-r.Context().Done()
		}
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL}
	const short = 50 * time.Millisecond
	get := func(path string, timeout time.Duration) (string, error) {
		client, err := rest.HTTPClientFor(kube.WithTimeout(config, timeout))
		kit.NoError(t, err)
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
	if _, err := get("/hangs", short); err == nil || !strings.Contains(err.Error(), "the API server did not answer in time (50ms)") {
		t.Errorf("a request that hangs: %v", err)
	}
	for timeout := short; ; timeout *= 2 { // until its beginning comes in time
		text, err := get("/half", timeout)
		if err == nil || err.Error() == "EOF" || text != "half" && timeout > kit.Patience {
			t.Errorf("an answer that hangs: %q, %v", text, err)
		}
		if text == "half" || timeout > kit.Patience {
			break
		}
	}
	if _, err := get("/quick", kit.Patience); err == nil || err.Error() != "EOF" {
		t.Errorf("a quick request: %v", err)
	}
	if _, err := get("/hangs?watch=true", short); err == nil || !strings.Contains(err.Error(), "the API server did not answer in time (50ms)") {
		t.Errorf("a watch that does not begin: %v", err)
	}
	for timeout := short; ; timeout *= 2 { // until its beginning comes in time
		_, err := get("/watch?watch=true", timeout)
		if err != nil && err.Error() == "EOF" {
			break
		}
		if err == nil || !strings.Contains(err.Error(), "did not answer in time") || timeout > kit.Patience {
			t.Fatalf("a watch: %v", err)
		}
	}
	if config.WrapTransport != nil {
		t.Error("the configuration was changed")
	}
}
